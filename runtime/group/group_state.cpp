// SPDX-License-Identifier: Apache-2.0
#include "runtime/group/group_state.h"

#include "compiler/group_plan.h"
#include "compiler/support/fork.h"
#include "runtime/group.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <unistd.h>

namespace moejit::runtime {
namespace {

// Never destroyed: groups may outlive static objects.
ForkMutex& claims_mutex() {
  static ForkMutex& mutex = *new ForkMutex;
  return mutex;
}
std::map<const std::byte*, int64_t>& claims() {  // bytes by base, under claims_mutex()
  static auto& all = *new std::map<const std::byte*, int64_t>;
  return all;
}

}  // namespace

Result<ClaimedMemory> ClaimedMemory::claim(int32_t rank, const void* base, int64_t bytes) {
  const auto* const first = static_cast<const std::byte*>(base);
  const std::lock_guard lock(claims_mutex());
  for (const auto& [claimed, claimed_bytes] : claims())
    if (first < claimed + claimed_bytes && claimed < first + bytes)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("the memory of rank {} at {} belongs to another group of this "
                              "process, wanted memory that no group has",
                              rank, fmt::ptr(base)),
                  "let layers share one group, destroy the other group first, or bring other "
                  "memory");
  claims().emplace(first, bytes);
  return ClaimedMemory(base);
}

ClaimedMemory::~ClaimedMemory() {
  if (base_ == nullptr) return;
  const std::lock_guard lock(claims_mutex());
  claims().erase(static_cast<const std::byte*>(base_));
}

namespace {

tl::unexpected<Error> refuse_state(std::string message, std::string hint) {
  return fail(Stage::kLaunch, ErrorCode::kInvalidState, std::move(message), std::move(hint));
}

}  // namespace

Result<void> check_is_of_group(const compiler::Plan& plan) {
  if (plan.group) return {};
  return fail(Stage::kLoad, ErrorCode::kUnsupported,
              plan.subject + " is of one rank, wanted a plan of a group's layer",
              "create it with MOEJIT_KIND_GROUP_LAYER, or prepare it for a device");
}

Result<void> check_transport(const compiler::Plan& plan, bool is_given) {
  MOEJIT_TRY(check_is_of_group(plan));
  const compiler::Layer& layer = *plan.layer;
  // With one rank nothing is moved, and a group of either kind will do.
  const bool fits = is_given ? layer.expert_parallel.transport == compiler::Transport::kNccl
                             : !compiler::uses_collectives(layer);
  if (fits) return {};
  return fail(
      Stage::kLoad, ErrorCode::kUnsupported,
      fmt::format("{} has the transport {}, and its group was to be opened {}",
                  compiler::named_layer(layer), to_string(layer.expert_parallel.transport),
                  is_given ? "with a transport" : "for kernels that reach their peers' memory"),
      is_given ? R"(say "transport": "nccl" in its expert_parallel)"
               : R"(open the group with a transport, or leave "transport" out of the description)");
}

GroupState::GroupState(const compiler::Plan& plan, Device& of)
    : device(&of),
      rank(static_cast<int32_t>(plan.group->rank)),
      memory(plan.group->memory),
      identity(compiler::group_identity(plan)),
      process(::getpid()) {}

std::byte* GroupState::status_word() const {
  return bases[static_cast<std::size_t>(rank)] +
         std::ranges::find(memory.tensors, "group_status", &compiler::PlacedTensor::name)->offset;
}

Result<void> GroupState::check_process() const {
  if (const pid_t caller = ::getpid(); caller != process)
    return refuse_state(
        fmt::format("the group is one of process {}, and process {} is its child, made by fork(), "
                    "which has no part in it",
                    process, caller),
        "start each rank as a program of its own, or fork before CUDA is used and open the group "
        "behind that");
  return {};
}

Result<void> GroupState::fill_with_zeros() const {
  MOEJIT_TRY(
      device->fill(bases[static_cast<std::size_t>(rank)], std::byte{0}, memory.bytes, nullptr));
  return device->synchronize(nullptr);
}

void GroupState::mend() {
  has_half_call = false;
  has_lost_peers = false;
  silent_status = 0;
}

Result<void> GroupCall::check() const {
  MOEJIT_TRY(state_.check_process());
  if (!is_owner_)
    return refuse_state("another thread is in a call of the group, wanted one call at a time",
                        "make a group's calls in one order, the same on all ranks");
  if (state_.is_destroyed)
    return refuse_state("the group of the layer was destroyed, wanted one that is alive",
                        "destroy a group behind the last call of its layers");
  if (state_.has_lost_peers)
    return refuse_state("the group was not opened again with all ranks, wanted one that is whole",
                        "reopen the group on all ranks");
  if (state_.has_half_call) {
    if (state_.transport != nullptr) MOEJIT_TRY(state_.transport->check());
    return refuse_state("a call of the group was launched in part, wanted whole calls",
                        state_.transport == nullptr
                            ? "reset the group on all ranks"
                            : "abort the group, and open another one on all ranks");
  }
  if (const uint32_t status = state_.silent_status; status != 0)
    return refuse_state(fmt::format("rank {} of the group was silent, wanted a call of all ranks",
                                    silent_ranks(status)),
                        "reset the group on all ranks; or, if the rank's process is gone, reopen "
                        "it with a new one");
  return {};
}

}  // namespace moejit::runtime
