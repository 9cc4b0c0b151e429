// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/context.h"
#include "runtime/nccl/nccl_api.h"
#include "runtime/nccl_transport.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <sys/types.h>

namespace moejit::runtime {

// A communicator of NCCL, made here or the caller's. The context of its GPU is current on a thread
// that opens one or calls in_group(). In a child made by fork(), and when the process is ending,
// nothing is called.
class Communicator {
 public:
  // Opens one, and waits for all ranks until the deadline. Errors: kInterrupted, kDriver.
  static Result<std::unique_ptr<Communicator>> open(const NcclApi& api, const NcclPlace& place);
  static Result<std::unique_ptr<Communicator>> adopt(const NcclApi& api, NcclComm comm,
                                                     int64_t deadline_ms);
  // Waits until NCCL is done with it, for 2 s at most: abort().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t ranks() const { return ranks_; }
  int64_t deadline_ms() const { return deadline_ms_; }

  // Calls of one group of NCCL, until one of them fails.
  class Group {
   public:
    void all_gather(const void* source, void* destination, int64_t bytes, Stream stream) {
      note("ncclAllGather", [&] {
        return api_.all_gather(source, destination, static_cast<std::size_t>(bytes), kNcclInt8,
                               comm_, stream);
      });
    }
    void send(const void* source, int64_t bytes, int32_t peer, Stream stream) {
      note("ncclSend", [&] {
        return api_.send(source, static_cast<std::size_t>(bytes), kNcclInt8, peer, comm_, stream);
      });
    }
    void recv(void* destination, int64_t bytes, int32_t peer, Stream stream) {
      note("ncclRecv", [&] {
        return api_.recv(destination, static_cast<std::size_t>(bytes), kNcclInt8, peer, comm_,
                         stream);
      });
    }

   private:
    friend class Communicator;
    Group(const NcclApi& api, NcclComm comm) : api_(api), comm_(comm) {}
    template <typename Call>
    void note(const char* name, Call call) {
      if (result_ != kNcclSuccess && result_ != kNcclInProgress) return;
      result_ = call();
      call_ = name;
    }

    const NcclApi& api_;
    NcclComm comm_;
    const char* call_ = "ncclGroupStart";
    NcclResult result_ = kNcclSuccess;
  };

  // Lets `add` add calls to a group, which then is under way. Errors: kInvalidState behind abort();
  // kDriver.
  template <typename Add>
  Result<void> in_group(Add add) {
    const std::lock_guard one_call(calls_);
    MOEJIT_TRY(check_usable());
    Group group(api_, steps());
    group.result_ = api_.group_start();
    add(group);
    const NcclResult ended = api_.group_end();
    group.note("ncclGroupEnd", [&] { return ended; });
    return settle(steps(), group.call_, group.result_);
  }

  // Returns what went wrong since the last call. Does not wait.
  Result<void> check();
  // Ends what is under way; any thread. NCCL is done with the communicator only when recorded
  // graphs of its steps are destroyed, and when other work of the GPU has ended. abort() waits for
  // that for 2 s at most, and leaves the rest to a thread of its own.
  void abort();

 private:
  // NCCL's handles of the communicator. NCCL's threads write a handle when they have made it,
  // perhaps after this object has given up.
  struct Handles {
    NcclComm parent = nullptr;  // by which the ranks met: its calls do not block
    NcclComm split = nullptr;   // of the parent
    NcclComm steps = nullptr;   // the split once it is whole, or the caller's
  };

  Communicator(const NcclApi& api, int64_t deadline_ms);
  Result<void> take_context();
  Result<void> check_usable() const;
  // Waits until a call that does not block is done, at most until the deadline in milliseconds.
  Result<void> settle(NcclComm comm, const char* call, NcclResult result) const;
  // Waits for the communicator of a split, which need not be whole then.
  Result<NcclComm> await_split();
  void end(NcclResult (*end_one)(NcclComm));
  NcclComm steps() const { return handles_->steps; }
  tl::unexpected<Error> not_done(const char* call) const;
  Result<void> join(const NcclPlace& place);

  const NcclApi& api_;
  std::shared_ptr<Handles> handles_ = std::make_shared<Handles>();
  std::shared_ptr<const Context> context_;
  std::timed_mutex calls_;  // of NCCL, with the communicator of steps
  bool is_own_ = true;
  int32_t rank_ = 0, ranks_ = 1;
  int64_t deadline_ms_;
  pid_t process_;
  std::atomic<bool> is_aborted_ = false;
};

}  // namespace moejit::runtime
