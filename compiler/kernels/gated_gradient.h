// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Computes the gradient of a gated activation by rows, as a row chain stores it, and makes operands
// of wgrad from the gradient and the activation, as TransposeSpec or ColumnCastSpec does, with one
// read of gate, up and the activation's gradient.
struct GatedGradientSpec {
  int32_t local_experts = 0;
  int32_t columns = 0;  // of gate and of up; stored halves have multiples of 128
  float epsilon = 0.0f;
  int32_t threads = 256;
  // The next three fields say what is computed beside the transposed activation.
  bool stores_rows = true;          // the gradient by rows
  bool tells_dprobs = true;         // parts of the probability's gradient
  bool transposes_gradient = true;  // the gradient transposed
  // Whether values are rounded to bf16 and cast by rows and by columns, with a scale for 128 tokens
  // of each column, instead of transposing the codes of the rows.
  bool casts_columns = false;
  Activation activation = {};
  int32_t threads_per_sm = 0;  // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const GatedGradientSpec&) const = default;
};

std::string to_string(const GatedGradientSpec& spec);

// Returns how many CTAs have work for `output_columns` columns, a multiple of 128.
int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
