// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/kernels/amax_columns.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What a kernel does with the gradient of a gated activation.
enum class GradientPass {
  kOnly,  // all, with scales of what it holds or known ones of experts
  kAmax,  // finds the largest magnitudes of rows' segments, and of columns of 128 tokens
  kCast,  // casts with scales made from these, for whole rows and for columns of an expert
};
std::string_view to_string(GradientPass pass);

// Computes the gradient of a gated activation by rows, as a row chain stores it. It also makes
// operands of wgrad from the gradient and the activation, as TransposeSpec or ColumnCastSpec does.
// All is done with one read of gate, up and the activation's gradient.
struct GatedGradientSpec {
  int32_t local_experts = 0;
  int32_t columns = 0;  // of gate and of up; stored halves have multiples of 128 in kOnly
  float epsilon = 0.0f;
  int32_t threads = 256;
  // The next three fields say what is computed beside the transposed activation.
  bool stores_rows = true;          // the gradient by rows
  bool tells_dprobs = true;         // parts of the probability's gradient
  bool transposes_gradient = true;  // the gradient transposed
  // Whether values are rounded to bf16 and cast by rows and by columns, instead of transposing the
  // codes of the rows. Columns have a scale for 128 tokens.
  bool casts_columns = false;
  GradientPass pass = GradientPass::kOnly;  // others only with casts_columns
  // Whether an expert's rows have one scale, which is known beforehand. Values are then rounded to
  // bf16 and cast, the activation to e4m3 and the gradient to `format`. Columns have the bytes of
  // rows.
  bool has_expert_scale = false;
  DType format = DType::kF8E4M3;  // or kF8E5M2 with has_expert_scale
  AmaxColumns amax = {};          // columns of a state that are raised to the gradient's magnitudes
  Activation activation = {};
  int32_t threads_per_sm = 0;  // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const GatedGradientSpec&) const = default;
};

std::string to_string(const GatedGradientSpec& spec);

// Returns how many columns half of a stored row has.
int32_t stored_columns(const GatedGradientSpec& spec);

// Returns how many CTAs have work for `output_columns` columns, a multiple of 128.
int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
