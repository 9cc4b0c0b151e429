// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the CTAs of a rank share the units of work of a kernel that sends and receives.
//
// Sending is bound by the wire, what follows receiving by memory, so some SMs send while others
// receive. A store that waits for the wire holds up all stores of its SM behind it: that is why
// SMs, not CTAs, are told apart. Those that send are few, so that the wire carries one chunk after
// the other and the first ones come early. A CTA takes the next unit of its kind, in ascending
// order; who has nothing left to send receives. A unit that receives waits for one that sends,
// which another rank takes without waiting for anybody: the walk ends in whatever order CTAs run,
// since the first one sends wherever it runs.
//
// tickets [3] are words of this rank: how many units of either kind were taken, and how many CTAs
// have ended. They are 0 between kernels: the last CTA sets them back.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/system_memory.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

template <int32_t kSenderSms>
class UnitWalk {
 public:
  static constexpr int32_t kSharedBytes = 16;

  MOEJIT_DEVICE explicit UnitWalk(uint32_t* tickets) : tickets_(ptx::global(tickets)) {}

  // Call visit(unit) for the units of 0 to count - 1 that this CTA sends, or receives. Every thread
  // calls.
  template <typename Visit>
  MOEJIT_DEVICE void send(int64_t count, Visit visit) const {
    if (ptx::cta_index() == 0 || ptx::sm_index() < kSenderSms) take(0, count, visit);
  }
  template <typename Visit>
  MOEJIT_DEVICE void receive(int64_t count, Visit visit) const {
    take(1, count, visit);
  }

  // Ends the walk of this CTA. Calls at_end() by one thread of the last one. Every thread calls.
  template <typename AtEnd>
  MOEJIT_DEVICE void end(AtEnd at_end) const {
    ptx::sync_cta();
    if (ptx::thread_index() != 0) return;
    const uint32_t others = static_cast<uint32_t>(ptx::cta_count()) - 1;
    if (ptx::fetch_add_ordered(tickets_ + 2, 1u) != others) return;
    for (int32_t i = 0; i < 3; ++i) ptx::store(tickets_ + i, 0u);
    at_end();
  }

 private:
  template <typename Visit>
  MOEJIT_DEVICE void take(int32_t kind, int64_t count, Visit visit) const {
    const auto shared = ptx::shared<uint32_t>(0);
    const bool takes = ptx::thread_index() == 0;
    uint32_t next = takes ? ptx::fetch_add(tickets_ + kind, 1u) : 0;
    for (;;) {
      ptx::sync_cta();  // the unit before is done, and everybody knows its number
      if (takes) ptx::store(shared, next);
      ptx::sync_cta();
      const int64_t unit = ptx::load(shared);
      if (unit >= count) return;
      // Where there is one for every CTA, nobody takes a second one before the first is done; else
      // its number is on its way meanwhile.
      const bool is_scarce = count <= ptx::cta_count();
      if (takes && !is_scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
      visit(unit);
      if (takes && is_scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
    }
  }

  ptx::GlobalPtr<uint32_t> tickets_;
};

}  // namespace moejit::device
