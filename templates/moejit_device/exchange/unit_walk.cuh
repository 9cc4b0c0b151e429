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
// tickets [kTicketWords] are words of this rank: how many units of either kind were taken, how many
// CTAs have ended, how many pieces of other work and how many parts of a last kind were taken, and
// the claims of SMs (kernel_sms.cuh). They are 0 between kernels: the last CTA sets them back.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/exchange/kernel_sms.cuh"
#include "moejit_device/params/exchange_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/system_memory.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

template <typename Sms>
class UnitWalk {
 public:
  static constexpr int32_t kSharedBytes = 16;

  // Every thread calls.
  MOEJIT_DEVICE explicit UnitWalk(uint32_t* tickets)
      : tickets_(ptx::global(tickets)), sms_(tickets_ + kTickets) {}

  // Returns whether this CTA takes part. If not, it calls end() and nothing else.
  MOEJIT_DEVICE bool works() const { return sms_.works(); }

  // Call visit(unit) for the units of 0 to count - 1 that this CTA sends, or receives. Every thread
  // calls.
  template <typename Visit>
  MOEJIT_DEVICE void send(int64_t count, Visit visit) const {
    if (sends()) take(kSent, next_of(kSent), count, visit);
  }
  template <typename Visit>
  MOEJIT_DEVICE void receive(int64_t count, Visit visit) const {
    take(kReceived, next_of(kReceived), count, visit);
  }

  // Return whether this CTA sends; the next unit that it sends, none at or beyond their count; and
  // call visit(unit) for that unit and further ones, as send() does. Every thread calls.
  MOEJIT_DEVICE bool sends() const { return sms_.sends(); }
  MOEJIT_DEVICE int64_t next_sent() const { return sends() ? next_of(kSent) : kNone; }
  template <typename Visit>
  MOEJIT_DEVICE void send_from(int64_t unit, int64_t count, Visit visit) const {
    take(kSent, unit, count, visit);
  }

  // Do what send() and receive() do, where one warp of the CTA takes units for all. Its lanes call,
  // and visit(unit, is_scarce) of a scarce unit returns when the unit is done.
  template <typename Visit>
  MOEJIT_DEVICE void send_by_warp(int64_t count, Visit visit) const {
    if (sends()) take_by_warp(kSent, count, visit);
  }
  template <typename Visit>
  MOEJIT_DEVICE void receive_by_warp(int64_t count, Visit visit) const {
    take_by_warp(kReceived, count, visit);
  }

  // Returns the number of the next piece of other work, from 0 on. Every thread calls.
  MOEJIT_DEVICE int64_t next_piece() const { return next_of(kPieces); }

  // Calls visit(part, parts) for the parts of work that needs no order. Every thread calls.
  template <typename Visit>
  MOEJIT_DEVICE void for_each_part(Visit visit) const {
    if constexpr (Sms::kAreAll) {
      visit(ptx::cta_index(), ptx::cta_count());
    } else {
      for (int64_t part = next_of(kDone); part < kParts; part = next_of(kDone)) {
        visit(static_cast<int32_t>(part), kParts);
      }
    }
  }

  // Ends the walk of this CTA. Calls at_end() by one thread of the last one. Every thread calls.
  template <typename AtEnd>
  MOEJIT_DEVICE void end(AtEnd at_end) const {
    ptx::sync_cta();
    if (ptx::thread_index() != 0) return;
    const uint32_t others = static_cast<uint32_t>(ptx::cta_count()) - 1;
    if (ptx::fetch_add_ordered(tickets_ + kEnded, 1u) != others) return;
    for (int32_t i = 0; i < kTickets; ++i) ptx::store(tickets_ + i, 0u);
    sms_.reset();
    at_end();
  }

 private:
  static constexpr int64_t kNone = int64_t{1} << 62;
  static constexpr int32_t kParts = 64;
  // What the tickets count, in their order: units, CTAs, pieces, parts.
  enum Ticket : int32_t { kSent, kReceived, kEnded, kPieces, kDone };
  static_assert(kDone + 1 == kTickets, "a word for each");

  template <typename Visit>
  MOEJIT_DEVICE void take(int32_t kind, int64_t unit, int64_t count, Visit visit) const {
    const bool scarce = are_scarce(count), takes = ptx::thread_index() == 0;
    while (unit < count) {
      uint32_t next = 0;
      if (takes && !scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
      visit(unit);
      if (takes && scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
      unit = told(next);
    }
  }
  template <typename Visit>
  MOEJIT_DEVICE void take_by_warp(int32_t kind, int64_t count, Visit visit) const {
    const bool scarce = are_scarce(count), takes = ptx::lane_index() == 0;
    int64_t unit = ptx::shuffle(takes ? ptx::fetch_add(tickets_ + kind, 1u) : 0u, 0);
    while (unit < count) {
      uint32_t next = 0;
      if (takes && !scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
      visit(unit, scarce);
      if (takes && scarce) next = ptx::fetch_add(tickets_ + kind, 1u);
      unit = ptx::shuffle(next, 0);
    }
  }
  // Where there is a unit for every CTA, nobody takes a second one before the first is done; else
  // its number is on its way meanwhile.
  MOEJIT_DEVICE static bool are_scarce(int64_t count) {
    return Sms::kAreAll && count <= ptx::cta_count();
  }
  MOEJIT_DEVICE int64_t next_of(int32_t kind) const {
    return told(ptx::thread_index() == 0 ? ptx::fetch_add(tickets_ + kind, 1u) : 0u);
  }
  // Tells all threads what the first one has.
  MOEJIT_DEVICE static int64_t told(uint32_t number) {
    const auto shared = ptx::shared<uint32_t>(0);
    ptx::sync_cta();  // everybody knows the number before, and is done with its unit
    if (ptx::thread_index() == 0) ptx::store(shared, number);
    ptx::sync_cta();
    return ptx::load(shared);
  }

  ptx::GlobalPtr<uint32_t> tickets_;
  Sms sms_;
};

}  // namespace moejit::device
