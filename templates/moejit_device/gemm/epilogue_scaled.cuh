// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scales that do not change along the contraction, applied once to the complete sums, which then
// go on to another epilogue. In which order a sum meets its two scales is what torch and cuBLASLt
// do, so that the bits are theirs.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// One factor for each group's A and one for its B: a_scale_inv [E], b_scale_inv [E]. A sum is
// multiplied with their product, which is rounded to fp32.
struct TensorFactors {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void apply(const Params& params, const GemmTile& tile, const WarpgroupPart&,
                                  float (&sums)[kW / 2]) {
    const float factor = ptx::multiply(ptx::load(ptx::global(params.a_scale_inv) + tile.group),
                                       ptx::load(ptx::global(params.b_scale_inv) + tile.group));
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = ptx::multiply(sums[i], factor);
  }
};

// One factor for each row of A and each column of D: a_scale_inv [P], b_scale_inv [E, N]. A sum is
// multiplied with its row's factor, rounded to fp32, then with its column's. Factors of pad rows
// and of columns past the section are not read.
template <typename Problem>
struct RowColumnFactors {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void apply(const Params& params, const GemmTile& tile,
                                  const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const int32_t row = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    const auto a = ptx::global(params.a_scale_inv) + (int64_t{tile.a_row} + row);
    const float rows[2] = {row < tile.rows ? ptx::load(a) : 0.0f,
                           row + 8 < tile.rows ? ptx::load(a + 8) : 0.0f};
    // Two columns of every eight: 8 bytes, and 8-byte aligned as N is a multiple of 8.
    const int32_t column = tile.column + part.column + ptx::lane_index() % 4 * 2;
    const auto b = ptx::as<const Bytes8>(ptx::global(params.b_scale_inv) +
                                         (static_cast<int64_t>(tile.group) * Problem::kN +
                                          tile.section * Problem::kSectionN + column));
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      Bytes8 columns = {};
      if (column + 8 * j < Problem::kSectionN) columns = ptx::load(b + 4 * j);
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) {
        float& sum = sums[4 * j + i];
        sum = ptx::multiply(ptx::multiply(sum, rows[i / 2]),
                            ptx::float_from_bits(columns.word[i % 2]));
      }
    }
  }
};

// Has the same factors for swapped tiles: rows of A are the columns of the sums.
template <typename Problem>
struct SwappedRowColumnFactors {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void apply(const Params& params, const GemmTile& tile,
                                  const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const int32_t column =
        tile.column + part.column + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    const auto b =
        ptx::global(params.b_scale_inv) + (static_cast<int64_t>(tile.group) * Problem::kN +
                                           tile.section * Problem::kSectionN + column);
    const float columns[2] = {column < Problem::kSectionN ? ptx::load(b) : 0.0f,
                              column + 8 < Problem::kSectionN ? ptx::load(b + 8) : 0.0f};
    const int32_t row = ptx::lane_index() % 4 * 2;
    const auto a = ptx::global(params.a_scale_inv) + (int64_t{tile.a_row} + row);
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const int32_t at = 8 * j + i;
        const float row_scale = row + at < tile.rows ? ptx::load(a + at) : 0.0f;
#pragma unroll
        for (int32_t half = 0; half < 2; ++half) {
          float& sum = sums[4 * j + 2 * half + i];
          sum = ptx::multiply(ptx::multiply(sum, row_scale), columns[half]);
        }
      }
    }
  }
};

// One factor for each row of A and each row of B of a group, where groups divide the contraction:
// a_scale_inv [E, rows of A], b_scale_inv [E, N]. A sum meets them in the order of
// RowColumnFactors.
template <typename Problem>
struct GradientRowColumnFactors {
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE static void apply(const Params& params, const GemmTile& tile,
                                  const WarpgroupPart& part, float (&sums)[kW / 2]) {
    const int32_t row = part.row + ptx::warp_index() % 4 * 16 + ptx::lane_index() / 4;
    const auto a = ptx::global(params.a_scale_inv) +
                   (static_cast<int64_t>(tile.group) * Problem::kRows + tile.a_row + row);
    const float rows[2] = {row < tile.rows ? ptx::load(a) : 0.0f,
                           row + 8 < tile.rows ? ptx::load(a + 8) : 0.0f};
    // Two columns of every eight: 8 bytes, and 8-byte aligned as N is a multiple of 8.
    const int32_t column = tile.column + part.column + ptx::lane_index() % 4 * 2;
    const auto b = ptx::as<const Bytes8>(ptx::global(params.b_scale_inv) +
                                         (static_cast<int64_t>(tile.group) * Problem::kN + column));
#pragma unroll
    for (int32_t j = 0; j < kW / 8; ++j) {
      Bytes8 columns = {};
      if (column + 8 * j < Problem::kN) columns = ptx::load(b + 4 * j);
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) {
        float& sum = sums[4 * j + i];
        sum = ptx::multiply(ptx::multiply(sum, rows[i / 2]),
                            ptx::float_from_bits(columns.word[i % 2]));
      }
    }
  }
};

// Factors of a group without products are not read: its sums are zeros.
template <typename Factors, typename Epilogue>
class EpilogueScaled {
 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Epilogue::template kStagingBytes<Shape>;

  static constexpr bool kHasStorers = Epilogue::kHasStorers;

  // Initializes each math warpgroup's buffer for the storers, by one thread.
  MOEJIT_DEVICE static void init(ptx::SharedPtr<Bytes16> staging) { Epilogue::init(staging); }

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit EpilogueScaled(ptx::SharedPtr<Bytes16> staging) : epilogue_(staging) {}

  // All threads of a math warpgroup. Overwrites the sums.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         float (&sums)[kW / 2]) {
    if (tile.k_steps > 0) Factors::template apply<kW>(params, tile, part, sums);
    epilogue_.template run<kW>(params, tile, part, sums);
  }

  // Finishes the stores. Called before the CTA ends.
  MOEJIT_DEVICE void finish() const { epilogue_.finish(); }

  // All lanes of a warpgroup's storer.
  template <typename Shape, typename Queue, typename Params>
  MOEJIT_DEVICE static void serve(const Params& params, ptx::SharedPtr<Bytes16> staging) {
    Epilogue::template serve<Shape, Queue>(params, staging);
  }

 private:
  Epilogue epilogue_;
};

}  // namespace moejit::device
