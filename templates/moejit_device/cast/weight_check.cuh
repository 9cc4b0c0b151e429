// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tells whether weights have changed since the last launch, whoever wrote to them, without reading
// all of them. A probe is 64 bytes, the least that HBM reads. Each window of kWindowProbes probes
// has one that is looked at, at a place that depends on the window alone: neither rows nor columns
// nor experts fall between probes. With a window of one probe every byte is looked at.
//
// Each thread has the same pieces of 16 bytes in each launch, and keeps a word that depends on all
// their bits and on their order. It misses a change with a chance of 2^-32. Every step of that word
// is a bijection of it, so that one changed word of 32 bits is missed only where the thread's word
// goes from 0 to 1 or back: 0 is stored as 1.
//
// The CTA that arrives last writes the result of all CTAs. So casts read one word, and no launch
// has to clear that word before. One word counts both CTAs and findings, so nobody has to wait for
// a fence.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/weight_check.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kExperts = 128;
//   constexpr int32_t kW1Rows = 1536;
//   constexpr int32_t kHidden = 2048;
//   constexpr int32_t kIntermediate = 768;
//   constexpr int32_t kWindowProbes = 288;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = WeightCheck<kExperts, kW1Rows, kHidden, kIntermediate, kWindowProbes, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_check_weights_...,
//                 WeightCheckParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/weight_check_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <int32_t kExperts, int32_t kW1Rows, int32_t kHidden, int32_t kIntermediate,
          int32_t kWindowProbes, int32_t kThreads_>
struct WeightCheck {
  static constexpr int32_t kProbeBytes = 64;
  static constexpr int32_t kPieces = kProbeBytes / 16;  // of a probe, a lane each
  static_assert(kW1Rows % 2 == 0 && kHidden % 16 == 0 && kIntermediate % 16 == 0,
                "a matrix is whole probes");
  static_assert(kWindowProbes > 0, "a window has a probe");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kCtasPerSm = 4;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kSharedBytes = 4 * kWarps;

  MOEJIT_DEVICE static void run(const WeightCheckParams& params) {
    const auto digest = ptx::global(params.digest);
    const auto status = ptx::global(params.status);
    if (status && is_first()) ptx::store(status, 0u);
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) {
      if (is_first()) ptx::store(digest + kDigestUnchanged, 1u);
      return;
    }
    const int64_t thread = int64_t{ptx::cta_index()} * kThreads + ptx::thread_index();
    const auto own = digest + (kDigestHeader + thread);
    const uint32_t before = ptx::load(own);
    const uint32_t now = word_of(params, thread);
    if (now != before) ptx::store(own, now);
    const uint32_t changed = ptx::ballot(now != before);
    const auto found = ptx::shared<uint32_t>(0);
    if (ptx::lane_index() == 0) ptx::store(found + ptx::warp_index(), changed);
    ptx::sync_cta();
    if (ptx::thread_index() == 0) arrive(digest, found);
  }

 private:
  static constexpr int64_t kProbeElements = kProbeBytes / 2;
  static constexpr int64_t kProbes1 = int64_t{kExperts} * kW1Rows * kHidden / kProbeElements;
  static constexpr int64_t kProbes2 = int64_t{kExperts} * kHidden * kIntermediate / kProbeElements;
  static constexpr int64_t kWindows1 = ceil_div(kProbes1, int64_t{kWindowProbes});
  static constexpr int64_t kWindows2 = ceil_div(kProbes2, int64_t{kWindowProbes});
  static constexpr int64_t kAllPieces = (kWindows1 + kWindows2) * kPieces;
  static constexpr int32_t kAtOnce = 4;  // loads of a thread in flight

  MOEJIT_DEVICE static bool is_first() { return ptx::cta_index() == 0 && ptx::thread_index() == 0; }

  // Multiplication by an odd number and exclusive or are bijections of `word`, whatever the data.
  MOEJIT_DEVICE static uint32_t mix(uint32_t word, uint32_t data) {
    return (word ^ data) * 0x9e3779b1u + 0x85ebca6bu;
  }

  // Spreads the bits of a window's index over a word; finalizer of MurmurHash3, public domain.
  MOEJIT_DEVICE static uint32_t spread(uint32_t word) {
    word = (word ^ (word >> 16)) * 0x85ebca6bu;
    word = (word ^ (word >> 13)) * 0xc2b2ae35u;
    return word ^ (word >> 16);
  }

  // Returns where the probe of a window is, counted in probes from the start of its weight.
  MOEJIT_DEVICE static int64_t probe_of(int64_t window, int64_t probes) {
    const int64_t first = window * kWindowProbes;
    if constexpr (kWindowProbes == 1) return first;
    const auto count = static_cast<uint64_t>(smaller(int64_t{kWindowProbes}, probes - first));
    return first + static_cast<int64_t>((spread(static_cast<uint32_t>(window)) * count) >> 32);
  }

  MOEJIT_DEVICE static Bytes16 piece(const WeightCheckParams& params, int64_t index) {
    const int64_t window = index / kPieces;
    const bool is_of_w1 = window < kWindows1;
    const int64_t probe =
        is_of_w1 ? probe_of(window, kProbes1) : probe_of(window - kWindows1, kProbes2);
    const auto weight = ptx::as<const Bytes16>(ptx::global(is_of_w1 ? params.w1 : params.w2));
    return ptx::load_streaming(weight + (probe * kPieces + index % kPieces));
  }

  // Returns the word of a thread; never 0, which no launch has left.
  MOEJIT_DEVICE static uint32_t word_of(const WeightCheckParams& params, int64_t thread) {
    const int64_t threads = int64_t{ptx::cta_count()} * kThreads;
    uint32_t word = 1;
    for (int64_t first = thread; first < kAllPieces; first += kAtOnce * threads) {
      Bytes16 data[kAtOnce];
#pragma unroll
      for (int32_t i = 0; i < kAtOnce; ++i) {
        const int64_t index = first + i * threads;
        data[i] = index < kAllPieces ? piece(params, index) : Bytes16{};
      }
#pragma unroll
      for (int32_t i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int32_t w = 0; w < 4; ++w) word = mix(word, data[i].word[w]);
      }
    }
    return word == 0 ? 1 : word;
  }

  // The lower half of the counter has CTAs, the upper one those that found a difference.
  MOEJIT_DEVICE static void arrive(ptx::GlobalPtr<uint32_t> digest,
                                   ptx::SharedPtr<uint32_t> found) {
    uint32_t changed = 0;
#pragma unroll
    for (int32_t w = 0; w < kWarps; ++w) changed |= ptx::load(found + w);
    const uint32_t own = changed != 0 ? 0x10001u : 1u;
    const uint32_t all = ptx::fetch_add(digest + kDigestArrived, own) + own;
    if ((all & 0xffffu) != static_cast<uint32_t>(ptx::cta_count())) return;
    ptx::store(digest + kDigestUnchanged, all >> 16 == 0 ? 1u : 0u);
    ptx::store(digest + kDigestArrived, 0u);
  }
};

}  // namespace moejit::device
