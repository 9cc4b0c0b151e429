// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ring of whole bf16 rows in the shared memory of a CTA. One warp brings rows by the tensor
// memory accelerator, while others add those that have come, one after the other: so many bytes are
// on their way without a register.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/core/segment_sum.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device {

// A place of a ring, and the parity of the phases of its barriers that complete in this round.
template <int32_t kPlaces>
struct RingPlace {
  int32_t place = 0;
  uint32_t parity = 0;

  MOEJIT_DEVICE void advance() {
    place = place + 1 == kPlaces ? 0 : place + 1;
    parity ^= place == 0 ? 1u : 0u;
  }
};

// kRows rows from byte kFirstByte on, and two barriers of each from kFirstBarrier on. The first
// kAdders threads of the CTA add.
template <int32_t kColumns, int32_t kAdders, int32_t kRows, int32_t kFirstBarrier,
          int32_t kFirstByte>
class RowRing {
  static_assert(kRows > 1 && kColumns % kRunColumns == 0, "rows of whole runs, one after another");
  static_assert(kFirstBarrier % 8 == 0 && kFirstByte % 16 == 0, "places of barriers and rows");
  static constexpr int32_t kRowBytes = 2 * kColumns, kRuns = kColumns / kRunColumns;
  static constexpr int32_t kPairs = ceil_div(kRuns, 2 * kAdders);

 public:
  static constexpr int32_t kEnd = kFirstByte + kRows * kRowBytes;

  // A thread's share of a row, and of a sum of rows: every kAdders-th run, two of them in a
  // segment.
  struct Share {
    Bf16Segment pair[kPairs];
  };
  struct Sum {
    ValueSegment pair[kPairs];
  };

  // One thread calls, before all others.
  MOEJIT_DEVICE static void init() {
#pragma unroll
    for (int32_t row = 0; row < kRows; ++row) {
      ptx::init_mbarrier(has_come(row), 1);
      ptx::init_mbarrier(is_free(row), kAdders / 32);
    }
  }

  // Brings rows. One warp has it, and all of its lanes call.
  class Bringing {
   public:
    MOEJIT_DEVICE void bring(ptx::GlobalPtr<const Bf16> row) {
      ptx::wait(is_free(at_.place), at_.parity ^ 1);
      ptx::sync_warp();  // no lane waits for this phase any more when the next one completes
      if (ptx::lane_index() == 0) {
        ptx::arrive_expecting(has_come(at_.place), kRowBytes);
        ptx::load_bulk(place(at_.place), ptx::as<const Bytes16>(row), kRowBytes,
                       has_come(at_.place));
      }
      at_.advance();
    }

   private:
    RingPlace<kRows> at_;
  };

  // Adds rows. Every thread that adds has it and calls.
  class Adding {
   public:
    // Adds the row that comes next to a sum, in fp32.
    MOEJIT_DEVICE void add_next(Sum& sum) {
      ptx::wait(has_come(at_.place), at_.parity);
      Share share = {};
      for_each_run([&](int32_t pair, int32_t run, int32_t at) {
        share.pair[pair].run[run] = ptx::load(place(at_.place) + at);
      });
      ptx::sync_warp();
      if (ptx::lane_index() == 0) ptx::arrive(is_free(at_.place));
      at_.advance();
      add(sum, share);
    }

   private:
    RingPlace<kRows> at_;
  };

  MOEJIT_DEVICE static void add(Sum& sum, const Share& share) {
#pragma unroll
    for (int32_t pair = 0; pair < kPairs; ++pair) {
      add_values(sum.pair[pair], unpack_bf16(share.pair[pair]), true);
    }
  }
  // Rounds once to bf16.
  MOEJIT_DEVICE static Share rounded(const Sum& sum) {
    Share share;
#pragma unroll
    for (int32_t pair = 0; pair < kPairs; ++pair) share.pair[pair] = pack_bf16(sum.pair[pair]);
    return share;
  }
  MOEJIT_DEVICE static void store(ptx::GlobalPtr<Bf16> row, const Share& share) {
    for_each_run([&](int32_t pair, int32_t run, int32_t at) {
      ptx::store_streaming(ptx::as<Bytes16>(row) + at, share.pair[pair].run[run]);
    });
  }

 private:
  MOEJIT_DEVICE static ptx::Mbarrier has_come(int32_t row) {
    return ptx::shared<uint64_t>(kFirstBarrier) + row;
  }
  MOEJIT_DEVICE static ptx::Mbarrier is_free(int32_t row) { return has_come(kRows + row); }
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> place(int32_t row) {
    return ptx::shared<Bytes16>(kFirstByte) + row * kRuns;
  }

  // Calls visit(pair, run, at) for the runs of this thread; `at` counts the runs of a row.
  template <typename Visit>
  MOEJIT_DEVICE static void for_each_run(Visit visit) {
#pragma unroll
    for (int32_t pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int32_t run = 0; run < 2; ++run) {
        const int32_t at = (2 * pair + run) * kAdders + ptx::thread_index();
        if (at < kRuns) visit(pair, run, at);
      }
    }
  }
};

}  // namespace moejit::device
