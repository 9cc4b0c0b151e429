// SPDX-License-Identifier: Apache-2.0
#pragma once

// The SMs whose CTAs work in a kernel of an exchange, and which of them send: all of the GPU, or so
// few that kernels on other streams have the rest.

#include "moejit_device/params/exchange_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/system_memory.cuh"
#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// All SMs. The first kSenderSms send, and the first CTA wherever it runs.
template <int32_t kSenderSms>
class AllSms {
 public:
  static constexpr bool kAreAll = true;

  MOEJIT_DEVICE explicit AllSms(ptx::GlobalPtr<uint32_t> /*claims*/) {}
  MOEJIT_DEVICE static bool works() { return true; }
  MOEJIT_DEVICE static bool sends() {
    return ptx::cta_index() == 0 || ptx::sm_index() < kSenderSms;
  }
  MOEJIT_DEVICE void reset() const {}
};

// The first kSms SMs on which CTAs of the kernel start, whichever these are, since others may be
// taken; CTAs that start on further SMs have to end at once. The first kSenderSms of these SMs
// send.
//
// claims [1 + 2 * kSmPlaces] are words of this rank, which are 0 between kernels: the number of SMs
// that were claimed; how many CTAs came to each SM; and the SM's number from 1 on. SMs that share a
// place count as one.
template <int32_t kSms, int32_t kSenderSms>
class FirstSms {
  static_assert(0 < kSenderSms && kSenderSms <= kSms, "an SM sends");

 public:
  static constexpr bool kAreAll = false;

  // Claims the SM for the kernel, unless enough are claimed. Every thread calls.
  MOEJIT_DEVICE explicit FirstSms(ptx::GlobalPtr<uint32_t> claims) : claims_(claims) {
    const auto shared = ptx::shared<uint32_t>(0);
    if (ptx::thread_index() == 0) ptx::store(shared, number());
    ptx::sync_cta();
    number_ = static_cast<int32_t>(ptx::load(shared));
  }
  MOEJIT_DEVICE bool works() const { return number_ < kSms; }
  MOEJIT_DEVICE bool sends() const { return number_ < kSenderSms; }
  // Makes all words 0 again. One thread calls, when all other CTAs have ended.
  MOEJIT_DEVICE void reset() const {
    for (int32_t i = 0; i < 1 + 2 * kSmPlaces; ++i) ptx::store(claims_ + i, 0u);
  }

 private:
  MOEJIT_DEVICE uint32_t number() const {
    const int32_t place = ptx::sm_index() % kSmPlaces;
    const auto told = claims_ + (1 + kSmPlaces + place);
    if (ptx::fetch_add(claims_ + (1 + place), 1u) == 0) {
      ptx::store_release_own(told, ptx::fetch_add(claims_, 1u) + 1);
    }
    return ptx::wait_own(ptx::as<const uint32_t>(told), 1u) - 1;
  }

  ptx::GlobalPtr<uint32_t> claims_;
  int32_t number_;
};

}  // namespace moejit::device
