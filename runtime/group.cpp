// SPDX-License-Identifier: Apache-2.0
#include "runtime/group.h"

#include "compiler/memory_layout.h"
#include "moejit_device/params/status_bits.h"
#include "runtime/group/group_state.h"
#include "runtime/group/identity.h"

#include <algorithm>
#include <fmt/format.h>

namespace moejit::runtime {
namespace {

using compiler::GroupPlan;
using compiler::PlacedTensor;

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

Result<void> fill_with_zeros(const GroupState& state) {
  MOEJIT_TRY(state.device->fill(state.bases[static_cast<std::size_t>(state.rank)], std::byte{0},
                                state.memory.bytes, nullptr));
  return state.device->synchronize(nullptr);
}

}  // namespace

std::byte* GroupState::address_of(std::string_view name, int32_t of_rank) const {
  const auto found = std::ranges::find(memory.tensors, name, &PlacedTensor::name);
  if (found == memory.tensors.end() || of_rank < 0 || of_rank >= std::ssize(bases)) return nullptr;
  return bases[static_cast<std::size_t>(of_rank)] + found->offset;
}

Result<void> GroupCall::check() const {
  const auto refuse_state = [](std::string message, std::string hint) {
    return fail(Stage::kLaunch, ErrorCode::kInvalidState, std::move(message), std::move(hint));
  };
  if (!is_owner_)
    return refuse_state("another thread is in a call of the group, wanted one call at a time",
                        "make a group's calls in one order, the same on all ranks");
  if (state_.is_destroyed)
    return refuse_state("the group of the layer was destroyed, wanted one that is alive",
                        "destroy a group behind the last call of its layers");
  if (state_.has_half_call)
    return refuse_state("a call of the group was launched in part, wanted whole calls",
                        "reset the group on all ranks");
  if (const uint32_t status = state_.silent_status; status != 0)
    return refuse_state(fmt::format("rank {} of the group was silent, wanted a call of all ranks",
                                    silent_ranks(status)),
                        "reset the group on all ranks");
  return {};
}

Result<void> compare_identities(std::span<const GroupMember> members) {
  for (std::size_t other = 1; other < members.size(); ++other)
    MOEJIT_TRY(compare({.rank = 0, .fields = members[0].identity},
                       {.rank = static_cast<int32_t>(other), .fields = members[other].identity}));
  return {};
}

Result<std::unique_ptr<Group>> Group::adopt(const GroupPlan& plan, Device& device,
                                            std::span<const GroupMember> members) {
  const int32_t ranks = plan.layer.expert_parallel.ranks;
  if (std::ssize(members) != ranks)
    return refuse(fmt::format("got memory of {} ranks, wanted that of the {} of {}", members.size(),
                              ranks, compiler::named_layer(plan.layer)));
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    MOEJIT_TRY(check_member(members, rank, plan.memory.bytes));
  MOEJIT_TRY(compare_identities(members));
  auto state = std::make_shared<GroupState>();
  state->device = &device;
  state->rank = static_cast<int32_t>(plan.rank);
  state->memory = plan.memory;
  for (const GroupMember& member : members)
    state->bases.push_back(static_cast<std::byte*>(member.base));
  MOEJIT_TRY(fill_with_zeros(*state));
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

Group::~Group() { state_->is_destroyed = true; }

int32_t Group::rank() const { return state_->rank; }
int32_t Group::ranks() const { return static_cast<int32_t>(state_->bases.size()); }

Result<uint32_t> Group::status() {
  uint32_t status = 0;
  MOEJIT_TRY(state_->device->copy_to_host(&status, state_->address_of("group_status", state_->rank),
                                          sizeof(status)));
  if ((status & device::kStatusSilentRank) != 0) state_->silent_status = status;
  return status;
}

Result<void> Group::clear_status(Stream stream) {
  const GroupCall call(*state_);
  MOEJIT_TRY(call.check());
  return state_->device->fill(state_->address_of("group_status", state_->rank), std::byte{0},
                              sizeof(uint32_t), stream);
}

Result<void> Group::reset() {
  MOEJIT_TRY(fill_with_zeros(*state_));
  state_->has_half_call = false;
  state_->silent_status = 0;
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
