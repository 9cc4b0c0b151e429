// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"

#include "compiler/memory_layout.h"
#include "compiler/planner/group_report.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

bool has_place(const GroupMemory& memory, std::string_view name) {
  return std::ranges::find(memory.tensors, name, &PlacedTensor::name) != memory.tensors.end();
}

// Places a tensor of that name, if it has no place yet.
void place(GroupMemory& memory, std::string name, int64_t bytes) {
  if (has_place(memory, name)) return;
  memory.tensors.push_back({.name = std::move(name), .bytes = bytes, .offset = memory.bytes});
  memory.bytes = align_offset(memory.bytes + bytes);
}

}  // namespace

GroupMemory group_memory(const Plan& plan, int64_t rank) {
  constexpr std::array kFirst = std::to_array<std::string_view>(
      {"group_status", "epoch", "choice_ids", "choice_probs", "choice_flags", "route_flags",
       "slots", "slot_scales", "row_flags", "tickets"});
  const std::string own = fmt::format("_{}", rank);
  std::vector<PlacedTensor> found;
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.role != TensorRole::kGroup) continue;
    const bool is_of_rank = tensor.name.ends_with(own);
    if (!is_of_rank && tensor.name != "epoch") continue;
    const std::size_t end = tensor.name.size() - (is_of_rank ? own.size() : 0);
    found.push_back({.name = tensor.name.substr(0, end), .bytes = tensor.bytes});
    if (found.back().name == "choice_flags")  // for counts and for rows of each piece
      found.push_back({.name = "route_flags", .bytes = 2 * tensor.bytes});
  }
  GroupMemory memory;
  for (const std::string_view name : kFirst)
    if (const auto first = std::ranges::find(found, name, &PlacedTensor::name);
        first != found.end())
      place(memory, first->name, first->bytes);
  for (const PlacedTensor& tensor : found) place(memory, tensor.name, tensor.bytes);
  return memory;
}

TensorInGroup find_in_group(const GroupMemory& memory, std::string_view tensor, int64_t own) {
  const auto find = [&](std::string_view name) -> const PlacedTensor* {
    const auto found = std::ranges::find(memory.tensors, name, &PlacedTensor::name);
    return found == memory.tensors.end() ? nullptr : &*found;
  };
  if (const PlacedTensor* const place = find(tensor)) return {place, own};
  if (tensor.size() < 2 || tensor[tensor.size() - 2] != '_') return {};
  return {find(tensor.substr(0, tensor.size() - 2)), tensor.back() - '0'};
}

bool contains(const GroupMemory& whole, const GroupMemory& part) {
  return std::ranges::all_of(part.tensors, [&](const PlacedTensor& tensor) {
    return std::ranges::find(whole.tensors, tensor) != whole.tensors.end();
  });
}

Result<void> check_is_of_one_rank(const Layer& layer) {
  if (!is_of_group(layer)) return {};
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("{}: got expert_parallel with {} ranks, wanted a layer of one rank",
                          named_layer(layer), layer.expert_parallel.ranks),
              "run it on a group: moejit run --ranks, moejit_group_adopt()");
}

Result<void> check_is_of_group(const Layer& layer) {
  if (is_of_group(layer)) return {};
  return fail(
      Stage::kPlan, ErrorCode::kUnsupported,
      fmt::format("{}: got no expert_parallel, wanted it for a group of ranks", named_layer(layer)),
      R"(add "expert_parallel": {"ranks": R} to its description)");
}

Layer layer_of_experts(const Layer& layer) {
  Layer experts = layer;
  experts.expert_parallel = {};
  experts.max_tokens = layer.expert_parallel.ranks * layer.max_tokens;
  experts.topk_ids_dtype = TopkIdsDtype::kI32;
  experts.topk_probs_dtype = TopkProbsDtype::kF32;
  // Without peers choices come as the caller gives them.
  if (layer.expert_parallel.ranks > 1) return experts;
  experts.topk_ids_dtype = layer.topk_ids_dtype;
  experts.topk_probs_dtype = layer.topk_probs_dtype;
  return experts;
}

Layer layer_of_one_rank(const Layer& layer) {
  Layer one = layer;
  one.expert_parallel = {};
  one.max_tokens = layer.expert_parallel.ranks * layer.max_tokens;
  one.local_experts = layer.experts;
  one.max_permuted_rows = worst_case_permuted_rows(one);
  return one;
}

}  // namespace moejit::compiler
