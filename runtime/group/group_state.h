// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "runtime/call.h"
#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/heap.h"
#include "runtime/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace moejit::runtime {

// Returns the error kUnsupported for the plan of an operation, or of a layer of one rank.
Result<void> check_is_of_group(const compiler::Plan& plan);

// Memory that a living group of this process has for its rank. No other group may take it too:
// their epochs and flags would be the same words.
class ClaimedMemory {
 public:
  // Claims memory of a rank. Error kInvalidValue if part of it is claimed.
  static Result<ClaimedMemory> claim(int32_t rank, const void* base, int64_t bytes);
  ClaimedMemory() = default;
  ClaimedMemory(ClaimedMemory&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  ClaimedMemory& operator=(ClaimedMemory&& other) noexcept {
    std::swap(base_, other.base_);
    return *this;
  }
  ~ClaimedMemory();

 private:
  explicit ClaimedMemory(const void* base) : base_(base) {}
  const void* base_ = nullptr;
};

// What a group and its layers share.
struct GroupState {
  GroupState(const compiler::Plan& plan, Device& of);

  Device* device;
  int32_t rank;
  compiler::GroupMemory memory;
  std::vector<std::string> identity;  // of the plan
  std::vector<std::byte*> bases;      // of each rank
  // The memory of each rank, if the group was opened; before bases are used no more.
  std::vector<std::unique_ptr<Heap>> heaps;
  ClaimedMemory claimed;                 // this rank's, if it was adopted
  std::unique_ptr<Transport> transport;  // if bytes are moved by one: then `bases` has this rank's
  DeviceMemory allocated;                // alone, which is here
  pid_t process;                         // that made the group
  std::atomic<bool> is_destroyed = false;
  std::atomic<bool> is_in_call = false;      // a thread binds or launches a call
  std::atomic<bool> has_half_call = false;   // a launch failed, so peers wait for what never comes
  std::atomic<bool> has_lost_peers = false;  // their memory is not mapped, or is being replaced
  std::atomic<uint32_t> silent_status = 0;   // the status word that told of a silent rank

  // Returns the address of this rank's status word.
  std::byte* status_word() const;
  // Returns the error kInvalidState in a child that was made by fork().
  Result<void> check_process() const;
  // Fills this rank's memory with zeros and waits for that.
  Result<void> fill_with_zeros() const;
  // Forgets what broke the group.
  void mend();
};

// Holds a group for one call. The group's calls have the order of its work on the stream, so two
// threads at a time are a mistake of the caller.
class GroupCall {
 public:
  explicit GroupCall(GroupState& state)
      : state_(state), is_owner_(!state.is_in_call.exchange(true)) {}
  ~GroupCall() {
    if (is_owner_) state_.is_in_call = false;
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  // Returns whether no other thread has the group.
  bool is_owner() const { return is_owner_; }
  // Returns the error kInvalidState if the group takes no call now.
  Result<void> check() const;

 private:
  GroupState& state_;
  bool is_owner_;
};

}  // namespace moejit::runtime
