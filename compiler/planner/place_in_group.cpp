// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/place_in_group.h"

#include "compiler/memory_layout.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <string_view>

namespace moejit::compiler {
namespace {

bool has_place(const GroupMemory& memory, std::string_view name) {
  return std::ranges::find(memory.tensors, name, &PlacedTensor::name) != memory.tensors.end();
}

// Returns the tensor's name without its rank.
std::string name_for_all_ranks(const TensorPlan& tensor) {
  std::string_view name = tensor.name;
  const std::string rank = fmt::format("_{}", tensor.rank);
  if (name.ends_with(rank)) name.remove_suffix(rank.size());
  return std::string(name);
}

// Places a tensor of that name, if it has no place yet.
void place(GroupMemory& memory, std::string name, int64_t bytes) {
  if (has_place(memory, name)) return;
  memory.tensors.push_back({.name = std::move(name), .bytes = bytes, .offset = memory.bytes});
  memory.bytes = align_offset(memory.bytes + bytes);
}

}  // namespace

GroupPlace place_in_group(Plan& plan, int64_t rank) {
  constexpr std::array kFirst = std::to_array<std::string_view>(
      {"group_status", "epoch", "choice_ids", "choice_probs", "choice_flags", "route_flags",
       "slots", "slot_scales", "row_flags", "tickets"});
  std::vector<PlacedTensor> found;
  for (const TensorPlan& tensor : plan.tensors) {
    if (tensor.role != TensorRole::kGroup || tensor.rank != rank) continue;
    found.push_back({.name = name_for_all_ranks(tensor), .bytes = tensor.bytes});
    if (found.back().name == "choice_flags")  // for counts and for rows of each piece
      found.push_back({.name = "route_flags", .bytes = 2 * tensor.bytes});
  }
  GroupMemory memory;
  for (const std::string_view name : kFirst)
    if (const auto first = std::ranges::find(found, name, &PlacedTensor::name);
        first != found.end())
      place(memory, first->name, first->bytes);
  for (const PlacedTensor& tensor : found) place(memory, tensor.name, tensor.bytes);
  for (TensorPlan& tensor : plan.tensors)
    if (tensor.role == TensorRole::kGroup)
      tensor.group_offset =
          std::ranges::find(memory.tensors, name_for_all_ranks(tensor), &PlacedTensor::name)
              ->offset;
  return {.rank = rank, .memory = std::move(memory)};
}

bool contains(const GroupMemory& whole, const GroupMemory& part) {
  return std::ranges::all_of(part.tensors, [&](const PlacedTensor& tensor) {
    return std::ranges::find(whole.tensors, tensor) != whole.tensors.end();
  });
}

}  // namespace moejit::compiler
