// SPDX-License-Identifier: Apache-2.0
// Opens groups with memory of their own: processes meet and map each other's memory.
#include "runtime/group.h"
#include "runtime/group/group_state.h"
#include "runtime/group/rendezvous.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

// Maps the memory of a rank that was met. After a reopen it has the address of the memory before.
Result<void> map_peer(GroupState& state, std::size_t rank, const MetRank& met) {
  std::unique_ptr<Heap>& memory = state.heaps[rank];
  if (met.bytes < state.memory.bytes || (memory != nullptr && memory->bytes() != met.bytes))
    return fail(Stage::kLoad, ErrorCode::kInternal,
                fmt::format("rank {} brought {} bytes of memory, wanted as many as this rank has",
                            rank, met.bytes));
  if (memory != nullptr) return memory->replace(met.file);
  MOEJIT_TRY_ASSIGN(memory, state.device->map_heap(met.file, met.bytes, met.gpu));
  state.bases[rank] = static_cast<std::byte*>(memory->address());
  return {};
}

Result<void> map_peers(GroupState& state, const std::vector<MetRank>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (static_cast<int32_t>(rank) != state.rank) MOEJIT_TRY(map_peer(state, rank, ranks[rank]));
  // All ranks have ended their calls before they met, so that nobody writes here any more.
  return state.fill_with_zeros();
}

// Meets the other ranks, and leaves with memory of all that holds zeros.
Result<void> meet(GroupState& state, const RendezvousPlace& place) {
  MOEJIT_TRY(state.device->synchronize_all());
  const Heap& own = *state.heaps[static_cast<std::size_t>(state.rank)];
  MOEJIT_TRY_ASSIGN(const FileDescriptor file, own.file());
  const Introduction introduction{.rank = state.rank,
                                  .ranks = static_cast<int32_t>(state.bases.size()),
                                  .bytes = own.bytes(),
                                  .gpu = state.device->gpu_facts().pci_bus_id,
                                  .identity = state.identity};
  MOEJIT_TRY_ASSIGN(Rendezvous met, Rendezvous::join(place, introduction, file));
  state.has_lost_peers = true;
  const Result<void> mapped = map_peers(state, met.ranks());
  MOEJIT_TRY(met.finish(mapped));
  state.mend();
  return {};
}

}  // namespace

Result<std::unique_ptr<Group>> Group::open(const compiler::Plan& plan, Device& device,
                                           const RendezvousPlace& place) {
  MOEJIT_TRY(check_transport(plan, false));
  auto state = std::make_shared<GroupState>(plan, device);
  const auto own = static_cast<std::size_t>(plan.group->rank);
  state->bases.resize(static_cast<std::size_t>(plan.layer->expert_parallel.ranks));
  state->heaps.resize(state->bases.size());
  MOEJIT_TRY_ASSIGN(state->heaps[own], device.allocate_heap(plan.group->memory.bytes));
  state->bases[own] = static_cast<std::byte*>(state->heaps[own]->address());
  MOEJIT_TRY(meet(*state, place));
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

Result<void> Group::reopen(const RendezvousPlace& place) {
  MOEJIT_TRY(state_->check_process());
  if (state_->transport != nullptr)
    return fail(Stage::kLoad, ErrorCode::kInvalidState,
                "the group has a transport, wanted one whose ranks reach each other's memory",
                "open another group on all ranks, with a new transport");
  if (state_->heaps.empty())
    return fail(Stage::kLoad, ErrorCode::kInvalidState,
                "the group adopted memory of the caller, wanted one that was opened",
                "reset it on all ranks; if a process is gone, bring the memory of all ranks again "
                "and adopt it");
  const GroupCall call(*state_);
  if (!call.is_owner())
    return fail(Stage::kLoad, ErrorCode::kInvalidState,
                "another thread is in a call of the group, wanted to reopen it between calls",
                "end the group's calls on all ranks, then reopen it");
  return meet(*state_, place);
}

}  // namespace moejit::runtime
