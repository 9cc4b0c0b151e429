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

// What these stages have in common: what a lane fetches is what the next stage gets.
template <int32_t kColumns_, typename Segment>
struct LoadSegments {
  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 2;
  static constexpr int32_t kThreadsPerSm = 1024;
  using Fetched = Segment;

  MOEJIT_DEVICE static Segment unpack(const Segment& fetched) { return fetched; }
};

// Loads bf16 rows that are moved unchanged: not a bit of a NaN changes. Uses input [rows, C].
template <int32_t kColumns>
struct LoadUnchangedRows : LoadSegments<kColumns, Bf16Segment> {
  static constexpr int32_t kRowBytes = kColumns * 2;

  MOEJIT_DEVICE static Bf16Segment fetch(const RowChainParams& params,
                                         const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    return fetch_runs(input, at, at.row, at.is_real());
  }
};

// bf16 rows. Uses input [rows, C].
template <int32_t kColumns>
struct LoadRows : LoadUnchangedRows<kColumns> {
  MOEJIT_DEVICE static ValueSegment unpack(const Bf16Segment& fetched) {
    return unpack_bf16(fetched);
  }
};

// e4m3 rows and their scales. Uses input [rows, C], input_scale_inv [rows, ceil(C / 128)].
template <int32_t kColumns>
struct LoadQuantizedRows : LoadSegments<kColumns, QuantizedSegment> {
  static constexpr int32_t kRowBytes = kColumns;

  MOEJIT_DEVICE static QuantizedSegment fetch(const RowChainParams& params,
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
};

// Rows of two codes of E2M1 to a byte, and their scales of E4M3. Uses input [rows, C / 2] and
// input_scale_inv, bytes [rows, 8 ceil(C / 128)].
template <int32_t kColumns>
struct LoadTwoLevelRows : LoadSegments<kColumns, TwoLevelSegment> {
  static constexpr int32_t kRowBytes = kColumns / 2;

  MOEJIT_DEVICE static TwoLevelSegment fetch(const RowChainParams& params,
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
template <int32_t kColumns, bool kInterleaved = false>
struct LoadGatedRows : LoadSegments<kColumns, GatedSegment> {
  MOEJIT_DEVICE static GatedSegment fetch(const RowChainParams& params,
                                          const SegmentPosition<kColumns>& at) {
    // Row r is the rows 2r (gate) and 2r + 1 (up) of a matrix of C columns.
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    const int64_t gate_row = 2 * at.row;
    GatedSegment fetched = {};
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
};

// A row without a gate, and its factor.
struct UpSegment {
  Bf16Segment up;
  float prob;
  ExistingRuns exists;
};

// bf16 rows. Uses input [P, C], probs [P].
template <int32_t kColumns>
struct LoadUpRows : LoadSegments<kColumns, UpSegment> {
  MOEJIT_DEVICE static UpSegment fetch(const RowChainParams& params,
                                       const SegmentPosition<kColumns>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    UpSegment fetched = {};
    fetched.exists = at.existing_runs();
    fetched.up = fetch_runs(input, at, at.row, at.is_real());
    if (at.is_real()) fetched.prob = ptx::load(row_probs(params) + at.row);
    return fetched;
  }
};

// A row, gated or not, and the gradient of its activation.
template <typename Segment>
struct GradientSegment {
  Segment forward;
  Bf16Segment gradient;
};
using GatedGradientSegment = GradientSegment<GatedSegment>;
using UpGradientSegment = GradientSegment<UpSegment>;

// Loads what Forward loads, and rows of the gradient. Uses gradient [P, C] too.
template <typename Forward, int32_t kThreads>
struct LoadGradientRows
    : LoadSegments<Forward::kColumns, GradientSegment<typename Forward::Fetched>> {
  static constexpr int32_t kSegmentsInFlight = 1;  // of gated rows 96 bytes of each lane
  static constexpr int32_t kThreadsPerSm = kThreads;

  MOEJIT_DEVICE static GradientSegment<typename Forward::Fetched> fetch(
      const RowChainParams& params, const SegmentPosition<Forward::kColumns>& at) {
    const auto gradient = ptx::global(static_cast<const Bf16*>(params.gradient));
    return {.forward = Forward::fetch(params, at),
            .gradient = fetch_runs(gradient, at, at.row, at.is_real())};
  }
};

template <int32_t kColumns, bool kInterleaved = false>
using LoadGatedGradientRows = LoadGradientRows<LoadGatedRows<kColumns, kInterleaved>, 768>;
template <int32_t kColumns>
using LoadUpGradientRows = LoadGradientRows<LoadUpRows<kColumns>, 1024>;

}  // namespace moejit::device
