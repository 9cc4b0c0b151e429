// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// Operands of a grouped product whose scales, if any, do not change along the contraction. There is
// one scale for each row and one for each column of the result. Scales of whole tensors are
// repeated; without scales all are 1.
struct EndScaledOperands {
  bool is_bf16 = false;  // whether values are bf16, else FP8 of these formats
  Fp8Format a_format = Fp8Format::kE4m3;
  Fp8Format b_format = Fp8Format::kE4m3;
  TensorCoreRule rule;
  ScaleOrder order = ScaleOrder::kProductOfScales;
  std::int64_t rows = 0;     // offs[E]
  std::int64_t columns = 0;  // of the result
  std::int64_t depth = 0;
  std::vector<float> a;        // [rows, depth], values that the format has
  std::vector<float> b;        // [experts, columns, depth], values that the format has
  std::vector<float> a_scale;  // [rows]
  std::vector<float> b_scale;  // [experts, columns]
};

// Computes for every real row r of expert e: out[r, n] = (sum over k of a[r, k] * b[e, n, k]) *
// a_scale[r] * b_scale[e, n]. The result is fp32 [rows, columns], to the bit as the kernels compute
// it, pad rows 0. Chains of `chain` products (the last one is shorter), as the tensor cores add
// them (tensor_core_chain), are added in ascending order, from 0. The sum is multiplied with both
// scales in their order.
std::vector<float> end_scaled_gemm_sums(const EndScaledOperands& operands, const Route& route,
                                        std::int64_t chain);

// Returns the sums of end_scaled_gemm_sums(), rounded to bf16.
std::vector<std::uint16_t> end_scaled_gemm(const EndScaledOperands& operands, const Route& route,
                                           std::int64_t chain);

// An operand of a weight gradient, whose columns are the tokens of all experts. It has values
// [rows, columns] that the format has, and for each expert a scale of each row [experts, rows].
// Scales of whole tensors are repeated.
struct EndScaledColumns {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Fp8Format format = Fp8Format::kE4m3;
  std::vector<float> values;
  std::vector<float> scale;
};

// Computes out[e, i, j] = (sum over the columns c of group e of a[i, c] * b[j, c]) * a_scale[e, i]
// * b_scale[e, j], fp32 [experts, a.rows, b.rows], in the order of end_scaled_gemm_sums(). Groups
// without columns are zeros, whatever their scales.
std::vector<float> end_scaled_weight_gradient(const EndScaledColumns& a, const EndScaledColumns& b,
                                              const Route& route, ScaleOrder order,
                                              std::int64_t chain);

}  // namespace moejit::reference
