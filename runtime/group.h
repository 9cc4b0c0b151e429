// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"
#include "runtime/transport.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

struct GroupState;

// The memory of one rank of a group, as a process reaches it.
struct GroupMember {
  void* base = nullptr;  // multiple of 256, the same bytes on the rank's GPU for all ranks
  int64_t bytes = 0;     // at least compiler::GroupMemory::bytes
  // compiler::group_identity() of the rank's plan. Empty: the caller knows that the plans agree.
  std::vector<std::string> identity = {};
};

// Where and until when the processes of a group meet.
struct RendezvousPlace {
  std::string path;             // of a Unix socket, at most 107 bytes; nothing is there before
  int64_t deadline_ms = 60000;  // of the whole meeting, from 1 to a day
};

// Compares what ranks said of their plans, entry r by rank r. Error kTensorMismatch names the first
// field that differs, the ranks, and their values.
Result<void> compare_identities(std::span<const GroupMember> members);

// Returns the error kUnsupported for a plan whose kernels leave their bytes to a transport, unless
// a transport is given. If one is given, returns it for a plan of the transport "peer". Returns it
// for each plan of one rank.
Result<void> check_transport(const compiler::Plan& plan, bool is_given);

// One rank's end of a group: GPUs that share the experts of layers. On one host they reach each
// other's memory. Either the group has that memory (open at a place), each rank being a process of
// its own. Or the caller brings it (adopt), and keeps it until all ranks are done with it. torch's
// symmetric memory, NCCL windows and NVSHMEM give such pointers, and in one process any memory
// after Device::reach(). On any hosts a transport moves the bytes (open with one), and peers reach
// nothing. The device must live as long as the group and its layers. Layers whose plans have the
// same GroupMemory, or a part of it, may share a group.
//
// All calls of a group belong to one order of work, the same on all ranks: one stream, or streams
// that wait for each other. A call of one rank waits for the calls of the others until the time-out
// of its plan. Then the status word names the silent rank.
//
// A group belongs to the process that made it. In a child made by fork() all calls are the error
// kInvalidState, and the destructor does nothing.
class Group {
 public:
  // Makes a group of memory of its own. It allocates this rank's memory, meets the processes of the
  // other ranks at the place, maps their memory, and fills this rank's with zeros. Returns when all
  // ranks have come so far; from then on each may make calls. Waits for the device's other work.
  // Errors: as of Rendezvous::join() in group/rendezvous.h, told on all ranks, with the time of the
  // place as their limit. kUnsupported if the device shares no memory or no link joins two GPUs;
  // kOutOfMemory. After an error nothing is left, neither memory nor the socket's file.
  static Result<std::unique_ptr<Group>> open(const compiler::Plan& plan, Device& device,
                                             const RendezvousPlace& place);
  // Meets again, when a rank's process is gone and a new one opens the group in its place. The
  // survivors call reopen(), and layers and recorded graphs keep their addresses. Mends what
  // reset() mends. Waits for the device's work; no stream may be recorded. Errors: as of open(),
  // after which it may be tried again; kInvalidState for a group that was adopted.
  Result<void> reopen(const RendezvousPlace& place);

  // Makes a group of the ranks' memory, members[r] being rank r's, for the plan's rank on this
  // device. Fills this rank's memory with zeros and waits for that: no rank may make a call before
  // all have adopted. Errors: kInvalidValue for another number of members than ranks, and for
  // memory that is null, unaligned, too small, given twice, or another group's. kTensorMismatch for
  // identities that differ.
  static Result<std::unique_ptr<Group>> adopt(const compiler::Plan& plan, Device& device,
                                              std::span<const GroupMember> members);
  // Makes a group whose bytes a transport moves, between ranks on any hosts: for a plan whose
  // transport is not "peer". Tells the other ranks what the plan is, and compares what they say;
  // allocates this rank's memory and fills it with zeros. The transport goes with the group, which
  // has to be destroyed on all ranks before any of their processes ends. Errors: kInvalidValue for
  // a transport of other ranks than the plan's; kUnsupported for a plan whose kernels reach their
  // peers. kTensorMismatch for identities that differ; as of Transport::introduce().
  static Result<std::unique_ptr<Group>> open(const compiler::Plan& plan, Device& device,
                                             std::unique_ptr<Transport> transport);
  // Ends steps that wait for a rank which does not come (Transport::abort()). May be called from
  // another thread than calls. The group is broken from then on: open another one.
  void abort();

  // Lets go of memory that the group has itself. Layers of the group may outlive it: their calls
  // are then the error kInvalidState. Graphs of its calls must not be launched any more.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int32_t rank() const;
  int32_t ranks() const;
  int64_t memory_bytes() const;     // of each rank, as planned
  int64_t allocated_bytes() const;  // for this rank, in the driver's steps (2 MiB); 0 if adopted

  // Returns the status word after the calls before it on the default stream; wait for other streams
  // before. It is 0, or has bits of params/status_bits.h. These are set by the experts of any rank
  // in calls since the last clear_status(), and for ranks that were silent. After a silent rank the
  // group is broken: calls are the error kInvalidState until reset().
  Result<uint32_t> status();
  // Clears the status word in the order of the stream. All ranks must call it between the same two
  // calls, or bits come back.
  Result<void> clear_status(Stream stream);
  // Makes a group work again after a silent rank or a failed launch: fills this rank's memory with
  // zeros and waits for that. No rank may be in a call, and none may make one before all are reset.
  Result<void> reset();

  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  explicit Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  std::shared_ptr<GroupState> state_;
};

// Returns the ranks that a status word says were silent, "1" or "1, 2"; empty if none was.
std::string silent_ranks(uint32_t status);

}  // namespace moejit::runtime
