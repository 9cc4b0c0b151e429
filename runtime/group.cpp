// SPDX-License-Identifier: Apache-2.0
#include "runtime/group.h"

#include "compiler/memory_layout.h"
#include "moejit_device/params/status_bits.h"
#include "runtime/group/group_state.h"
#include "runtime/group/rendezvous_messages.h"

#include <algorithm>
#include <fmt/format.h>

namespace moejit::runtime {
namespace {

using compiler::PlacedTensor;
using compiler::Plan;

tl::unexpected<Error> refuse(std::string message, std::string hint = {}) {
  return fail(Stage::kLaunch, ErrorCode::kInvalidValue, std::move(message), std::move(hint));
}

bool overlaps(const GroupMember& a, const GroupMember& b) {
  const auto *first = static_cast<const std::byte*>(a.base),
             *second = static_cast<const std::byte*>(b.base);
  return first < second + b.bytes && second < first + a.bytes;
}

Result<void> check_member(std::span<const GroupMember> members, std::size_t rank, int64_t wanted) {
  const GroupMember& member = members[rank];
  if (member.base == nullptr)
    return refuse(fmt::format("the memory of rank {} is null, wanted {} bytes", rank, wanted));
  if (reinterpret_cast<uintptr_t>(member.base) % compiler::kOffsetAlignment != 0)
    return refuse(fmt::format("the memory of rank {} is at {}, wanted a multiple of {}", rank,
                              fmt::ptr(member.base), compiler::kOffsetAlignment));
  if (member.bytes < wanted)
    return refuse(
        fmt::format("the memory of rank {} has {} bytes, wanted {}", rank, member.bytes, wanted),
        "moejit plan and the plan's GroupMemory tell the bytes");
  for (std::size_t other = 0; other < rank; ++other)
    if (overlaps(members[other], member))
      return refuse(
          fmt::format("ranks {} and {} have the same memory at {}, wanted memory of its "
                      "own for each",
                      other, rank, fmt::ptr(member.base)));
  return {};
}

}  // namespace

Result<void> compare_identities(std::span<const GroupMember> members) {
  for (std::size_t other = 1; other < members.size(); ++other)
    MOEJIT_TRY(compare({.rank = 0, .fields = members[0].identity},
                       {.rank = static_cast<int32_t>(other), .fields = members[other].identity}));
  return {};
}

Result<std::unique_ptr<Group>> Group::adopt(const Plan& plan, Device& device,
                                            std::span<const GroupMember> members) {
  MOEJIT_TRY(check_transport(plan, false));
  const int32_t ranks = plan.layer->expert_parallel.ranks;
  if (std::ssize(members) != ranks)
    return refuse(fmt::format("got memory of {} ranks, wanted that of the {} of {}", members.size(),
                              ranks, compiler::named_layer(*plan.layer)));
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    MOEJIT_TRY(check_member(members, rank, plan.group->memory.bytes));
  MOEJIT_TRY(compare_identities(members));
  auto state = std::make_shared<GroupState>(plan, device);
  for (const GroupMember& member : members)
    state->bases.push_back(static_cast<std::byte*>(member.base));
  MOEJIT_TRY_ASSIGN(
      state->claimed,
      ClaimedMemory::claim(state->rank, state->bases[static_cast<std::size_t>(state->rank)],
                           plan.group->memory.bytes));
  MOEJIT_TRY(state->fill_with_zeros());
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

Result<std::unique_ptr<Group>> Group::open(const Plan& plan, Device& device,
                                           std::unique_ptr<Transport> transport) {
  MOEJIT_TRY(check_transport(plan, true));
  const int32_t ranks = plan.layer->expert_parallel.ranks;
  if (transport->ranks() != ranks || transport->rank() != plan.group->rank)
    return refuse(
        fmt::format("the transport is that of rank {} of {}, wanted rank {} of {} as {} "
                    "is planned",
                    transport->rank(), transport->ranks(), plan.group->rank, ranks,
                    compiler::named_layer(*plan.layer)));
  auto state = std::make_shared<GroupState>(plan, device);
  MOEJIT_TRY_ASSIGN(const auto identities, transport->introduce(state->identity));
  const RankIdentity own{.rank = state->rank,
                         .fields = identities[static_cast<std::size_t>(state->rank)]};
  for (std::size_t other = 0; other < identities.size(); ++other)
    if (!identities[other].empty())
      MOEJIT_TRY(compare(own, {.rank = static_cast<int32_t>(other), .fields = identities[other]}));
  MOEJIT_TRY_ASSIGN(state->allocated, DeviceMemory::allocate(device, plan.group->memory.bytes));
  state->transport = std::move(transport);
  state->bases.resize(static_cast<std::size_t>(ranks));
  state->bases[static_cast<std::size_t>(plan.group->rank)] =
      static_cast<std::byte*>(state->allocated.address());
  MOEJIT_TRY(state->fill_with_zeros());
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

void Group::abort() {
  if (state_->transport == nullptr) return;
  state_->has_half_call = true;
  state_->transport->abort();
}

Group::~Group() {
  state_->is_destroyed = true;
  state_->heaps.clear();
  state_->claimed = {};
  if (!state_->check_process()) {  // they are the parent's
    static_cast<void>(state_->transport.release());
    static_cast<void>(new DeviceMemory(std::move(state_->allocated)));
    return;
  }
  state_->transport.reset();
  state_->allocated = {};
}

int32_t Group::rank() const { return state_->rank; }
int32_t Group::ranks() const { return static_cast<int32_t>(state_->bases.size()); }
int64_t Group::memory_bytes() const { return state_->memory.bytes; }
int64_t Group::allocated_bytes() const {
  return state_->heaps.empty() ? 0 : state_->heaps[static_cast<std::size_t>(state_->rank)]->bytes();
}

Result<uint32_t> Group::status() {
  MOEJIT_TRY(state_->check_process());
  if (state_->transport != nullptr) {
    auto lost = state_->transport->check();
    if (!lost) state_->has_half_call = true;
    MOEJIT_TRY(lost);
  }
  uint32_t status = 0;
  MOEJIT_TRY(state_->device->copy_to_host(&status, state_->status_word(), sizeof(status)));
  if ((status & device::kStatusSilentRank) != 0) state_->silent_status = status;
  return status;
}

Result<void> Group::clear_status(Stream stream) {
  const GroupCall call(*state_);
  MOEJIT_TRY(call.check());
  return state_->device->fill(state_->status_word(), std::byte{0}, sizeof(uint32_t), stream);
}

Result<void> Group::reset() {
  MOEJIT_TRY(state_->check_process());
  if (state_->has_lost_peers)
    return fail(Stage::kLaunch, ErrorCode::kInvalidState,
                "the group lost memory of its peers when it was last opened, wanted to reset one "
                "that is whole",
                "reopen the group on all ranks");
  if (state_->transport != nullptr) MOEJIT_TRY(state_->transport->check());
  MOEJIT_TRY(state_->fill_with_zeros());
  state_->mend();
  return {};
}

std::string silent_ranks(uint32_t status) {
  std::string ranks;
  if ((status & device::kStatusSilentRank) == 0) return ranks;
  for (uint32_t rank = 0; rank < 8; ++rank)
    if ((status & (device::kStatusFirstRank << rank)) != 0)
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  return ranks;
}

}  // namespace moejit::runtime
