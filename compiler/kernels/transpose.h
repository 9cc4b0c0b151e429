// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// How the scaling-aware transpose picks the scale of a tile and moves bytes to it.
enum class TransposeRule {
  kIdeal,       // the largest scale of a row that is not all zeros; rounds to nearest even
  kForkCompat,  // the largest of all; drops subnormals and keeps the mantissa of what underflows
};

// Where the rows come from that are transposed.
enum class RowSource {
  kInOrder,      // permuted, with their scales
  kGathered,     // those of tokens, by the permuted rows' row_tokens, which tell zeros too
  kGatheredAll,  // likewise, of a gradient: no row is made zeros
};

// Turns q [P, columns] with compact power-of-two scales into [columns, Pc], an operand of wgrad
// with one scale for each 128x128 tile: each group's rows become columns that start at a multiple
// of 128. No value is quantized twice: bytes are multiplied by powers of two.
struct TransposeSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;          // of q, a multiple of 16
  bool counts_flushed = false;  // values that were not 0 and became 0
  int32_t threads = 128;        // 64 for each tile that a CTA holds
  bool operator==(const TransposeSpec&) const = default;
};

std::string_view to_string(TransposeRule rule);
std::string_view to_string(RowSource source);

std::string to_string(const TransposeSpec& spec);

// Returns the CTAs that a transpose into so many columns, a multiple of 128, gives work to.
int64_t busy_ctas(const TransposeSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
