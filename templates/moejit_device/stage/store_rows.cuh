// SPDX-License-Identifier: Apache-2.0
#pragma once

// Store stages that write row r of the input to row r of the output.

#include "moejit_device/map/splits.cuh"
#include "moejit_device/stage/contract.cuh"

namespace moejit::device {

// The rows 0 to params.rows - 1, all real.
struct AllRows {
  int64_t count;

  MOEJIT_DEVICE static AllRows of(const RowChainParams& params) { return {params.rows}; }
  MOEJIT_DEVICE RowKind kind_of(int64_t) { return RowKind::kReal; }
};

// The rows of all groups, real and pad; offs[E] of them, known on the device only.
template <int32_t kGroups>
struct GroupedRows {
  int64_t count;
  GroupWalk<kGroups> walk;

  MOEJIT_DEVICE static GroupedRows of(const RowChainParams& params) {
    const Splits<kGroups> splits{ptx::global(params.counts), ptx::global(params.offs)};
    return {.count = smaller(int64_t{splits.rows()}, params.rows), .walk = {.splits = splits}};
  }
  MOEJIT_DEVICE RowKind kind_of(int64_t row) {
    return walk.is_pad(row) ? RowKind::kPad : RowKind::kReal;
  }
};

// A quantized segment and, from one of its lanes, its scale.
template <int32_t kColumns>
MOEJIT_DEVICE void store_quantized(void* matrix, float* scale_inv,
                                   const SegmentPosition<kColumns>& at,
                                   const QuantizedSegment& segment) {
  store_bytes(ptx::global(static_cast<E4m3*>(matrix)), at, segment.bytes);
  if (at.exists() && segment_lane() == 0) {
    ptx::store(ptx::global(scale_inv) + at.scale_offset(), segment.scale_inv);
  }
}

// Every row of the input. Uses output [rows, C] and, for quantized segments,
// output_scale_inv [rows, ceil(C / 128)].
template <int32_t kColumns_>
struct StoreRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = false;
  using Rows = AllRows;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const Bf16Segment& segment) {
    store_runs(ptx::global(static_cast<Bf16*>(params.output)), at, segment);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const QuantizedSegment& segment) {
    store_quantized(params.output, params.output_scale_inv, at, segment);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched&, const CodesSegment& segment) {
    store_bytes(ptx::global(static_cast<E4m3*>(params.output)), at, segment.bytes);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

// The rows of all groups; pad rows become zeros with scale 0, and their input is not read. Rows
// from offs[E] on are left alone. Uses counts [E], offs [E + 1] and what StoreRows uses.
template <int32_t kColumns_, int32_t kLocalExperts>
struct StoreGroupedRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = true;
  using Rows = GroupedRows<kLocalExperts>;
  using Fetched = Nothing;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams&, const SegmentPosition<kColumns>&) {
    return {};
  }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const Segment& segment) {
    StoreRows<kColumns>::store(params, at, where, at.is_real() ? segment : Segment{});
  }
  MOEJIT_DEVICE static void finish(const RowChainParams&) {}
};

}  // namespace moejit::device
