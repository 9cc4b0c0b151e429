// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/expert_rows.h"
#include "runtime/check/gathered_rows.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/recorded_amax.h"
#include "runtime/check/transposed_rows.h"
#include "runtime/trial/fp8_format.h"

#include <algorithm>
#include <span>

namespace moejit::check {

void check_kernel(const compiler::CastTransposeSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("row_tokens") || !tensors.has("expert_scales")) return;
  const std::vector<uint16_t> values = permuted_rows(
      spec.zeroes_rows ? compiler::RowSource::kGathered : compiler::RowSource::kGatheredAll,
      spec.columns, tensors);
  const reference::Route route = tensors.route();
  const std::span<const float> scales = tensors.view<float>("expert_scales");
  std::vector<uint8_t> wanted(values.size());
  ExpertAmax recorded(scales.size());
  for (size_t e = 0; e < route.counts.size(); ++e)
    for (int64_t i = 0; i < route.counts[e] && route.offs[e] + i < route.rows(); ++i) {
      const auto first = static_cast<size_t>((route.offs[e] + i) * spec.columns);
      const auto row = std::span(values).subspan(first, static_cast<size_t>(spec.columns));
      std::ranges::copy(reference::cast_bf16(row, scales[e], trial::fp8_format(spec.format)),
                        wanted.begin() + static_cast<int64_t>(first));
      recorded.raise(e, reference::amax_of_bf16(row));
    }
  if (tensors.has("output")) list.codes(tensors, "output", wanted);
  if (tensors.has("output_colwise")) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(wanted));
    check_kept_bytes(tensors,
                     {spec.format, {route.rows(), spec.columns}, {bytes.begin(), bytes.end()}},
                     "output_colwise", list);
  }
  check_recorded_amax(spec.amax, recorded, tensors, list);
}

}  // namespace moejit::check
