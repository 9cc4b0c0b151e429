// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/collective_call.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::runtime {

using compiler::CollectivePlan;
using compiler::Plan;
using compiler::TensorPlan;

Result<CollectiveCall> CollectiveCall::resolve(const Plan& plan, std::size_t index,
                                               std::span<std::byte* const> group) {
  const CollectivePlan& step = plan.collectives[index];
  const auto wrong_plan = [&](std::string_view what) {
    return fail(Stage::kLoad, ErrorCode::kInternal,
                fmt::format("the plan's step {} has {}", step.operation, what));
  };
  if (step.moves.size() > kMostMoves) return wrong_plan("too many moves");
  const auto place_of = [&](std::string_view name) -> Result<Place> {
    const auto tensor = std::ranges::find(plan.tensors, name, &TensorPlan::name);
    if (tensor == plan.tensors.end()) return wrong_plan(fmt::format("no tensor {}", name));
    Place place{.slot = static_cast<std::size_t>(tensor - plan.tensors.begin())};
    if (tensor->role != compiler::TensorRole::kGroup) return place;
    place.in_group = address_in_group(*tensor, group);
    if (place.in_group == nullptr)
      return wrong_plan(fmt::format("no memory of a group for {}", name));
    return place;
  };
  CollectiveCall call;
  for (const compiler::BlockMove& move : step.moves) {
    MOEJIT_TRY_ASSIGN(const Place source, place_of(move.source));
    MOEJIT_TRY_ASSIGN(const Place destination, place_of(move.destination));
    call.moves_.push_back({.movement = move.movement,
                           .source = source,
                           .destination = destination,
                           .bytes = move.bytes});
  }
  return call;
}

Result<void> CollectiveCall::run(Transport& transport, const BoundTensors& tensors,
                                 Stream stream) const {
  std::array<BlockTransfer, kMostMoves> blocks;
  for (std::size_t i = 0; i < moves_.size(); ++i)
    blocks[i] = {.movement = moves_[i].movement,
                 .source = moves_[i].source.address(tensors),
                 .destination = moves_[i].destination.address(tensors),
                 .bytes = moves_[i].bytes};
  return transport.move(std::span(blocks).first(moves_.size()), stream);
}

}  // namespace moejit::runtime
