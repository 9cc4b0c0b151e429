// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_group.h"

#include "runtime/reference/compare.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/route.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/routing_tensors.h"

#include <array>
#include <fmt/core.h>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;
using compiler::Layer;

TensorCheck compare(const std::string& name, const HostTensor& got, const HostTensor& wanted) {
  const testing::TensorView view{.name = name, .cols = std::max<int64_t>(got.shape.back(), 1)};
  if (got.dtype == DType::kBF16)
    return check_of(
        name, testing::compare_bf16(view, elements<uint16_t>(got), elements<uint16_t>(wanted)));
  return check_of(name, testing::compare_f32(view, elements<float>(got), elements<float>(wanted)));
}

}  // namespace

std::vector<uint16_t> partial_sums(const Layer& layer, const OneRankRun& one,
                                   std::string_view rows) {
  const auto row_map = copy_elements<int32_t>(one.results.find("row_map")->second);
  const auto values = copy_elements<uint16_t>(one.results.find(rows)->second);
  const std::vector<int64_t> ids = trial::expert_ids(one.inputs.find("topk_ids")->second);
  const int64_t tokens = std::ssize(ids) / layer.top_k, columns = layer.hidden;
  std::vector<float> sums(static_cast<std::size_t>(tokens * columns));
  for (int64_t rank = 0; rank < layer.expert_parallel.ranks; ++rank) {
    std::vector<int32_t> of_rank(row_map.size(), -1);
    std::vector<bool> is_served(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const int64_t first = rank * layer.local_experts;
      if (ids[i] < first || ids[i] >= first + layer.local_experts) continue;
      of_rank[i] = row_map[i];
      is_served[i / static_cast<std::size_t>(layer.top_k)] = true;
    }
    const auto partial = reference::unpermute(values, of_rank, tokens, layer.top_k, columns);
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (is_served[i / static_cast<std::size_t>(columns)])
        sums[i] += reference::float_from_bf16(partial[i]);
  }
  std::vector<uint16_t> rounded;
  rounded.reserve(sums.size());
  for (const float sum : sums) rounded.push_back(reference::bf16_from_float(sum));
  return rounded;
}

std::vector<TensorCheck> check_group(const Layer& layer, const OneRankRun& one,
                                     std::span<const TensorMap> ranks,
                                     std::span<const int64_t> tokens) {
  constexpr std::array kNames = std::to_array<std::string_view>(
      {"y", "dx", "dprobs", "dw1", "dw1_gate", "dw1_up", "dw2", "db1", "db2"});
  std::vector<TensorCheck> checks;
  for (const std::string_view name : kNames) {
    const auto found = one.results.find(name);
    if (found == one.results.end()) continue;
    HostTensor wanted = found->second;
    const bool is_sum = name == "y" || name == "dx";
    if (is_sum && layer.expert_parallel.combine == compiler::Combine::kPartial)
      wanted = make_tensor(DType::kBF16, wanted.shape,
                           partial_sums(layer, one, name == "y" ? "h2" : "dx_permuted"));
    const bool is_of_tokens = is_sum || name == "dprobs";
    int64_t first = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const int64_t count = is_of_tokens ? tokens[rank] : layer.local_experts;
      checks.push_back(compare(fmt::format("{} of rank {}", name, rank),
                               ranks[rank].find(name)->second,
                               trial::slice_rows(wanted, first, count)));
      first += count;
    }
  }
  return checks;
}

}  // namespace moejit::check
