// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// 4-bit weights beside rows in bf16, as checkpoints have them and in packed tiles.

// Bytes of a packed tile: 128 x 64 codes of four bits, and four bytes of scales a row.
inline constexpr std::int64_t kPackedBf16CodeBytes = 4096,
                              kPackedBf16TileBytes = kPackedBf16CodeBytes + 512;

enum class FourBitFormat {
  kNvfp4,  // value = E2M1 code * E4M3 scale of 16 of a row
  kInt4,   // value = (code - zero point) * scale of 128 of a row
};

// Matrices as checkpoints have them; the factor of a section is not among them. `codes` are
// [experts, rows, cols / 2], the first of a byte in its low half.
struct FourBitWeights {
  FourBitFormat format{};
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;        // a multiple of 16; of kInt4 of 128
  std::int64_t sections = 1;    // 2: gate and up
  bool is_interleaved = false;  // whether rows of the sections alternate
  std::span<const std::uint8_t> codes;
  std::span<const std::uint8_t> scales;      // of kNvfp4: E4M3 [experts, rows, cols / 16]
  std::span<const float> row_scales;         // of kInt4: [experts, rows, cols / 128], bf16 or fp16
  std::span<const std::uint8_t> zeros = {};  // of kInt4: likewise, 0 to 16
};

struct PackedBf16Weights {
  std::vector<std::uint8_t> tiles;  // [experts, tiles of rows, tiles of columns, bytes]
  bool is_bad = false;  // a scale is NaN, no number of its format, or a zero point over 16
};

// Packs weights into tiles of the same values, as docs/layer-description.md describes them.
PackedBf16Weights pack_four_bit(const FourBitWeights& weights);

// Returns one weight without the factor of its section, by the format's definition; exact.
float value_of(const FourBitWeights& weights, std::int64_t row, std::int64_t col);

// What tensor cores and promotion get of packed tiles.
struct Bf16Codes {
  std::int64_t rows = 0, cols = 0;    // of an expert
  std::vector<std::uint16_t> values;  // bf16 [experts, rows, cols]
  std::vector<float> scales;          // of kInt4: [experts, rows, cols / 128]; else empty
};
Bf16Codes unpack_four_bit(FourBitFormat format, std::span<const std::uint8_t> tiles,
                          std::int64_t experts, std::int64_t rows, std::int64_t cols,
                          std::int64_t sections);

// Computes for every real row r of expert e the sum over k of rows[r, k] * B[e][n, k].
// Sums are fp32 [offs[E], n], to the bit as the kernels. With scales, p is the chain of the
// products of 128 of k (tensor_core_chain), and sum = fma(p, scale, sum) from 0 on, ascending.
// Without, it is one chain. Either is multiplied with the section's factor, of [E, sections], once.
// Pad rows are 0.
std::vector<float> packed_gemm_sums(std::span<const std::uint16_t> rows, const Bf16Codes& codes,
                                    std::span<const float> factors, const Route& route,
                                    const TensorCoreRule& rule = {});

// Random weights, in which every code occurs, and of scales subnormal and negative ones.
struct RandomFourBit {
  FourBitFormat format{};
  std::vector<std::uint8_t> codes, scales, zeros;
  std::vector<float> row_scales;

  FourBitWeights view(std::int64_t experts, std::int64_t rows, std::int64_t cols,
                      std::int64_t sections = 1, bool is_interleaved = false) const;
};
// `elements` is a multiple of 16; of kInt4 of 128.
RandomFourBit random_four_bit(FourBitFormat format, std::int64_t elements, std::uint64_t seed);

// Returns `count` random factors, about as large as sums over 1000 of k of such weights want them.
std::vector<float> random_section_factors(FourBitFormat format, std::int64_t count,
                                          std::uint64_t seed);

}  // namespace moejit::reference
