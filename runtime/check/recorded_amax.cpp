// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/recorded_amax.h"

#include <algorithm>

namespace moejit::check {

using runtime::elements;
using runtime::HostTensor;

void check_recorded_amax(const compiler::AmaxColumns& columns, const ExpertAmax& experts,
                         const KernelTensors& tensors, CheckList& list) {
  if (!is_recorded(columns) || !tensors.has("amax")) return;
  const HostTensor* const before = tensors.before("amax");
  if (before == nullptr) return;
  const std::span<const float> old = elements<float>(*before), got = tensors.view<float>("amax");
  const auto width = static_cast<size_t>(before->shape.back());
  std::vector<float> recorded;
  std::vector<double> wanted, bounds;
  for (size_t row = 0; row < old.size(); row += width)
    for (size_t e = 0; e < experts.amax.size(); ++e) {
      const size_t column =
          e * static_cast<size_t>(columns.stride) + static_cast<size_t>(columns.first);
      const bool is_this_step = row == 0;
      recorded.push_back(got[row + column]);
      wanted.push_back(is_this_step ? std::max<double>(old[column], experts.amax[e])
                                    : double{old[row + column]});
      bounds.push_back(is_this_step ? experts.bound[e] : 0.0);
    }
  const std::string_view name = tensors.name("amax");
  const testing::Comparison comparison = testing::compare_f32_within(
      {name, static_cast<int64_t>(experts.amax.size())}, recorded, wanted, bounds);
  const bool is_exact = std::ranges::all_of(bounds, [](double bound) { return bound == 0.0; });
  list.add_part(is_exact ? check_of(name, comparison) : check_within(name, comparison));
}

}  // namespace moejit::check
