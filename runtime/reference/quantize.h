// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/tensor_core.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

inline constexpr std::int64_t kBlock = 128;      // elements that share a scale along a dimension
inline constexpr float kActivationEps = 1e-10F;  // smallest amax of a 1x128 block

inline std::int64_t block_count(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

// A matrix quantized by 1x128 blocks: q is E4M3 [rows, cols], scale_inv is compact [rows,
// block_count(cols)], or [rows] where a row has one scale.
struct QuantizedRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> q;
  std::vector<float> scale_inv;
  TensorCoreRule rule;  // of products of the rows
};

// Experts' weights quantized by 128x128 blocks: q is E4M3 [experts, rows, cols]. The rows of an
// expert are `sections` equal parts and blocks restart at each: 2 for w1 (gate, up), 1 for w2.
// scale_inv is [experts, scale_rows(), block_count(cols)].
struct QuantizedWeights {
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t sections = 1;
  std::vector<std::uint8_t> q;
  std::vector<float> scale_inv;

  std::int64_t scale_rows() const { return sections * block_count(rows / sections); }
  // Returns the row of scale_inv, within an expert, that weight row `row` uses.
  std::int64_t scale_row_of(std::int64_t row) const {
    const std::int64_t section_rows = rows / sections;
    return row / section_rows * block_count(section_rows) + row % section_rows / kBlock;
  }
};

// Quantizes `values`, bf16 [rows, cols]. The last block of a row covers the columns that are left.
// Each `sharing` consecutive blocks of a row, from block 0 on, get the scale of their common amax.
// At the end of the row fewer blocks may be left.
QuantizedRows quantize_1x128(std::span<const std::uint16_t> values, std::int64_t rows,
                             std::int64_t cols, float eps = kActivationEps,
                             std::int64_t sharing = 1);

// Quantizes `values`, bf16 [experts, rows, cols], with eps 0; blocks at an edge cover what is left.
// Each `sharing` consecutive blocks of the same rows get a common scale, as in quantize_1x128().
QuantizedWeights quantize_128x128(std::span<const std::uint16_t> values, std::int64_t experts,
                                  std::int64_t rows, std::int64_t cols, std::int64_t sections,
                                  std::int64_t sharing = 1);

// The bytes and scales of QuantizedWeights, transposed: q is E4M3 [experts, cols, rows], scale_inv
// [experts, block_count(cols), scale_rows].
struct ColwiseWeights {
  std::vector<std::uint8_t> q;
  std::vector<float> scale_inv;
};

ColwiseWeights transpose(const QuantizedWeights& weights);

// Return the fp32 values of the quantized matrices.
std::vector<float> dequantize(const QuantizedRows& matrix);
std::vector<float> dequantize(const QuantizedWeights& weights);

}  // namespace moejit::reference
