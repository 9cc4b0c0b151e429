// SPDX-License-Identifier: Apache-2.0
#pragma once

// The largest magnitudes of matrices in bf16, of each in pieces of kPieceElements. A CTA takes a
// piece with all its loads in flight, then the next one that is its own.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/matrix_amax.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kRows = 4096;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = MatrixAmax<kRows, kColumns, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_amax_w1_..., MatrixAmaxParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/core/segment.cuh"
#include "moejit_device/params/matrix_amax_params.h"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

template <int32_t kRows, int32_t kColumns, int32_t kThreads_>
struct MatrixAmax {
  static constexpr int64_t kElements = int64_t{kRows} * kColumns;
  static_assert(kElements % 8 == 0, "a matrix is whole accesses of 16 bytes");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = 1024 / kThreads;
  static constexpr int32_t kSharedBytes = 2 * 4 * kWarps;
  static constexpr int32_t kSegments = 4;  // of a thread, two accesses each
  static constexpr int64_t kPieceElements = int64_t{kThreads} * kSegments * 16;
  static constexpr int64_t kPieces = ceil_div(kElements, kPieceElements);

  MOEJIT_DEVICE static void run(const MatrixAmaxParams& params) {
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    const int64_t pieces = params.matrices * kPieces;
    // Two sets of slots take turns, as in the tile chain: one barrier a piece is enough.
    int32_t turn = 0;
    for (int64_t piece = ptx::cta_index(); piece < pieces; piece += ptx::cta_count()) {
      const auto slots = ptx::shared<float>(0) + turn * kWarps;
      const float amax = max_of_cta<kWarps>(slots, max_of_piece(params.input, piece));
      if (ptx::thread_index() == 0) ptx::store(ptx::global(params.output) + piece, amax);
      turn ^= 1;
    }
  }

 private:
  MOEJIT_DEVICE static float max_of_piece(const Bf16* matrices, int64_t piece) {
    const int64_t matrix = piece / kPieces;
    const int64_t first = (piece - matrix * kPieces) * kPieceElements;
    const auto input = ptx::global(matrices) + matrix * kElements;
    Bf16Segment segment[kSegments];
#pragma unroll
    for (int32_t i = 0; i < 2 * kSegments; ++i) {
      const int64_t at = first + 8 * (i * kThreads + ptx::thread_index());
      Bytes16& run = segment[i / 2].run[i % 2];
      run = Bytes16{};
      if (at < kElements) run = ptx::load_streaming(ptx::as<const Bytes16>(input + at));
    }
    return max_magnitude(segment);
  }
};

}  // namespace moejit::device
