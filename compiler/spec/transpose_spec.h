// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
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
// of 128. No value is quantised twice: bytes are multiplied by powers of two.
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

// Makes the gradient of a gated activation by rows, as a row chain stores it, and transposes it and
// the activation, as TransposeSpec does: from one read of gate, up and the activation's gradient.
struct GatedGradientSpec {
  int32_t local_experts = 0;
  int32_t columns = 0;  // of gate and of up; halves of what is stored are multiples of 128
  float epsilon = 0.0f;
  int32_t threads = 256;
  // These say what is wanted beside the transposed activation.
  bool stores_rows = true;          // the gradient by rows
  bool tells_dprobs = true;         // parts of the probability's gradient
  bool transposes_gradient = true;  // the gradient transposed
  Activation activation = {};
  bool operator==(const GatedGradientSpec&) const = default;
};

std::string_view to_string(TransposeRule rule);
std::string_view to_string(RowSource source);

std::string to_string(const TransposeSpec& spec);
std::string to_string(const GatedGradientSpec& spec);

}  // namespace moejit::compiler
