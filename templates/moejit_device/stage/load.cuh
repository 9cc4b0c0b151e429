// SPDX-License-Identifier: Apache-2.0
#pragma once

// Load stages of the row chain that read one segment for each segment of the output.
// kSegmentsInFlight: how many segments a lane loads before it uses the first. kThreadsPerSm: how
// many threads an SM should hold, with the registers that this leaves to each. kRowBytes: of a row
// of `input`, where L2 may be asked for whole ones.

#include "moejit_device/core/two_level_segment.cuh"
#include "moejit_device/stage/contract.cuh"
#include "moejit_device/stage/interleaved.cuh"

namespace moejit::device {

// bf16 rows. Uses input [rows, C].
template <int32_t kColumns_>
struct LoadRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kRowBytes = kColumns * 2;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = Bf16Segment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    return fetch_runs(input, at, at.row, at.is_real());
  }
  MOEJIT_DEVICE static ValueSegment unpack(const Fetched& fetched) { return unpack_bf16(fetched); }
};

// Loads rows that are moved unchanged: not a bit of a NaN changes.
template <int32_t kColumns_>
struct LoadUnchangedRows : LoadRows<kColumns_> {
  MOEJIT_DEVICE static Bf16Segment unpack(const Bf16Segment& fetched) { return fetched; }
};

// e4m3 rows and their scales. Uses input [rows, C], input_scale_inv [rows, ceil(C / 128)].
template <int32_t kColumns_>
struct LoadQuantizedRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kRowBytes = kColumns;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = QuantizedSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const E4m3*>(params.input));
    const auto scales = ptx::global(params.input_scale_inv);
    QuantizedSegment segment = {};
    if (!at.is_real()) return segment;
    segment.scale_inv = ptx::load_streaming(scales + at.scale_offset());
    const int32_t column = byte_column();
    if (at.is_inside(column)) {
      segment.bytes = ptx::load_streaming(ptx::as<const Bytes16>(input + at.offset(column)));
    }
    return segment;
  }
  MOEJIT_DEVICE static QuantizedSegment unpack(const Fetched& fetched) { return fetched; }
};

// Rows of two codes of E2M1 to a byte, and their scales of E4M3. Uses input [rows, C / 2] and
// input_scale_inv, bytes [rows, 8 ceil(C / 128)].
template <int32_t kColumns_>
struct LoadTwoLevelRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kRowBytes = kColumns / 2;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = TwoLevelSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto codes = ptx::global(static_cast<const E2m1x2*>(params.input));
    const auto scales = ptx::as<const Bytes8>(ptx::global(params.input_scale_inv));
    TwoLevelSegment segment = {};
    if (!at.is_real()) return segment;
    segment.scales = ptx::load_streaming(scales + at.scale_offset());
    const int32_t column = code_column();
    if (at.is_inside(column)) {
      segment.codes = ptx::load_streaming(ptx::as<const Bytes8>(codes + at.offset(column) / 2));
    }
    return segment;
  }
  MOEJIT_DEVICE static TwoLevelSegment unpack(const Fetched& fetched) { return fetched; }
};

// Returns the factors of permuted rows.
MOEJIT_DEVICE ptx::GlobalPtr<const float> row_probs(const RowChainParams& params) {
  return ptx::global(static_cast<const float*>(params.probs));
}

// The two halves of a gated row, and the factor of the row.
struct GatedSegment {
  Bf16Segment gate;
  Bf16Segment up;
  float prob;
  ExistingRuns exists;
};

// bf16 rows of 2C columns, gate in the first half, or with kInterleaved gate and up in turn. Uses
// input [P, 2C], probs [P].
template <int32_t kColumns_, bool kInterleaved = false>
struct LoadGatedRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = GatedSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    // Row r is the rows 2r (gate) and 2r + 1 (up) of a matrix of C columns.
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    const int64_t gate_row = 2 * at.row;
    Fetched fetched = {};
    fetched.exists = at.existing_runs();
    if constexpr (kInterleaved) {
      fetch_pairs(input, at, fetched.gate, fetched.up);
    } else {
      fetched.gate = fetch_runs(input, at, gate_row, at.is_real());
      fetched.up = fetch_runs(input, at, gate_row + 1, at.is_real());
    }
    if (at.is_real()) fetched.prob = ptx::load(row_probs(params) + at.row);
    return fetched;
  }
  MOEJIT_DEVICE static GatedSegment unpack(const Fetched& fetched) { return fetched; }
};

// A row without a gate, and its factor.
struct UpSegment {
  Bf16Segment up;
  float prob;
  ExistingRuns exists;
};

// bf16 rows. Uses input [P, C], probs [P].
template <int32_t kColumns_>
struct LoadUpRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = UpSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    Fetched fetched = {};
    fetched.exists = at.existing_runs();
    fetched.up = fetch_runs(input, at, at.row, at.is_real());
    if (at.is_real()) fetched.prob = ptx::load(row_probs(params) + at.row);
    return fetched;
  }
  MOEJIT_DEVICE static UpSegment unpack(const Fetched& fetched) { return fetched; }
};

// A gated row and the gradient of its activation.
struct GatedGradientSegment {
  GatedSegment forward;
  Bf16Segment gradient;
};

// Loads what LoadGatedRows loads, and rows of the gradient. Uses gradient [P, C] too.
template <int32_t kColumns_, bool kInterleaved = false>
struct LoadGatedGradientRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 1;  // 96 bytes of each lane
  static constexpr int32_t kThreadsPerSm = 768;
  using Fetched = GatedGradientSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto gradient = ptx::global(static_cast<const Bf16*>(params.gradient));
    return {.forward = LoadGatedRows<kColumns, kInterleaved>::fetch(params, at),
            .gradient = fetch_runs(gradient, at, at.row, at.is_real())};
  }
  MOEJIT_DEVICE static GatedGradientSegment unpack(const Fetched& fetched) { return fetched; }
};

// A row without a gate and the gradient of its activation.
struct UpGradientSegment {
  UpSegment forward;
  Bf16Segment gradient;
};

// Loads what LoadUpRows loads, and rows of the gradient. Uses gradient [P, C] too.
template <int32_t kColumns_>
struct LoadUpGradientRows {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 1;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = UpGradientSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    const auto gradient = ptx::global(static_cast<const Bf16*>(params.gradient));
    return {.forward = LoadUpRows<kColumns>::fetch(params, at),
            .gradient = fetch_runs(gradient, at, at.row, at.is_real())};
  }
  MOEJIT_DEVICE static UpGradientSegment unpack(const Fetched& fetched) { return fetched; }
};

}  // namespace moejit::device
