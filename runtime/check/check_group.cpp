// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_group.h"

#include "runtime/reference/compare.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/route.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/router_inputs.h"

#include <algorithm>
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
  if (got.dtype == DType::kI32)
    return check_of(name,
                    testing::compare_i32(view, elements<int32_t>(got), elements<int32_t>(wanted)));
  if (got.dtype == DType::kI64)
    return check_of(name,
                    testing::compare_i64(view, elements<int64_t>(got), elements<int64_t>(wanted)));
  if (got.dtype == DType::kBF16)
    return check_of(
        name, testing::compare_bf16(view, elements<uint16_t>(got), elements<uint16_t>(wanted)));
  return check_of(name, testing::compare_f32(view, elements<float>(got), elements<float>(wanted)));
}

// Compares what a router has added to a tensor on all ranks, which held the same before, with what
// one rank has added. They are integers, so ranks add up exactly.
template <typename Integer>
void check_sums(const std::string& name, const OneRankRun& one, std::span<const TensorMap> ranks,
                std::vector<TensorCheck>& checks) {
  const auto held = one.inputs.find(name);
  if (held == one.inputs.end()) return;  // no sum of a router, or a route's own counts
  const HostTensor& wanted = one.results.at(name);
  const std::span<const Integer> before = elements<Integer>(held->second);
  std::vector<Integer> sums(before.begin(), before.end());
  for (const TensorMap& rank : ranks) {
    const std::span<const Integer> own = elements<Integer>(rank.at(name));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += own[i] - before[i];
  }
  const std::string title = fmt::format("{} of all ranks", name);
  checks.push_back(compare(title, make_tensor(wanted.dtype, {std::ssize(sums)}, sums), wanted));
}

// Returns the rank that serves each choice, [T, K + n]; -1 for none. Shared experts are on the
// token's rank.
std::vector<int64_t> servers_of_choices(const Layer& layer, const OneRankRun& one,
                                        std::span<const int64_t> tokens) {
  const std::vector<int64_t> ids = trial::chosen_ids(layer, one.inputs);
  std::vector<int64_t> servers;
  auto id = ids.begin();
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    for (int64_t token = 0; token < tokens[rank]; ++token) {
      for (const auto end = id + layer.top_k; id != end; ++id)
        servers.push_back(*id >= 0 && *id < layer.experts ? *id / layer.local_experts : -1);
      servers.insert(servers.end(), static_cast<std::size_t>(layer.shared.experts),
                     static_cast<int64_t>(rank));
    }
  return servers;
}

}  // namespace

std::vector<uint16_t> partial_sums(const Layer& layer, const OneRankRun& one,
                                   std::span<const int64_t> tokens_of_ranks,
                                   std::string_view rows) {
  const auto row_map = copy_elements<int32_t>(one.results.find("row_map")->second);
  const auto values = copy_elements<uint16_t>(one.results.find(rows)->second);
  const std::vector<int64_t> servers = servers_of_choices(layer, one, tokens_of_ranks);
  const int64_t choices = layer.top_k + layer.shared.experts, columns = layer.hidden;
  const int64_t tokens = std::ssize(servers) / choices;
  std::vector<float> sums(static_cast<std::size_t>(tokens * columns));
  for (int64_t rank = 0; rank < layer.expert_parallel.ranks; ++rank) {
    std::vector<int32_t> of_rank(row_map.size(), -1);
    std::vector<bool> is_served(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (servers[i] != rank) continue;
      of_rank[i] = row_map[i];
      is_served[i / static_cast<std::size_t>(choices)] = true;
    }
    const auto partial = reference::unpermute(values, of_rank, tokens, choices, columns);
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
      {"topk_ids", "topk_probs", "y", "dx", "dprobs", "dshared_probs", "dlogits", "dexpert_scale",
       "dw1", "dw1_gate", "dw1_up", "dw2", "db1", "db2"});
  constexpr std::array kOfExperts =
      std::to_array<std::string_view>({"dw1", "dw1_gate", "dw1_up", "dw2", "db1", "db2"});
  std::vector<TensorCheck> checks;
  for (const std::string_view name : kNames) {
    const auto found = one.results.find(name);
    if (found == one.results.end()) continue;
    if (layer.router && name == "dprobs") continue;  // no result: the router takes it
    // Each rank's gradient is of the loss that its own counts give.
    if (name == "dlogits" && layer.router->aux != compiler::AuxCounts::kNone) continue;
    HostTensor wanted = found->second;
    const bool is_sum = name == "y" || name == "dx";
    if (is_sum && layer.expert_parallel.combine == compiler::Combine::kPartial)
      wanted = make_tensor(DType::kBF16, wanted.shape,
                           partial_sums(layer, one, tokens, name == "y" ? "h2" : "dx_permuted"));
    const bool is_of_tokens = std::ranges::find(kOfExperts, name) == kOfExperts.end();
    int64_t first = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const int64_t count = is_of_tokens ? tokens[rank] : layer.local_experts;
      checks.push_back(compare(fmt::format("{} of rank {}", name, rank),
                               trial::slice_rows(ranks[rank].find(name)->second, 0, count),
                               trial::slice_rows(wanted, first, count)));
      first += count;
    }
  }
  for (const char* const name : {"counts", "unbiased_counts"})
    check_sums<int32_t>(name, one, ranks, checks);
  for (const char* const name : {"score_sums", "z_sum"})
    check_sums<int64_t>(name, one, ranks, checks);
  return checks;
}

}  // namespace moejit::check
