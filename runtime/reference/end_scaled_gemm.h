// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// The order in which the complete sum is multiplied by its two scales. Each product is rounded to
// fp32.
enum class ScaleOrder {
  kProductOfScales,  // sum * (a_scale * b_scale): scales of tensors
  kRowThenColumn,    // (sum * a_scale) * b_scale: scales of rows and columns
};

// Operands of a grouped product whose scales, if any, do not change along the contraction: one for
// each row and one for each column of the result. Scales of whole tensors are repeated; without
// scales all are 1.
struct EndScaledOperands {
  bool is_bf16 = false;  // whether values are bf16, else e4m3
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
// a_scale[r] * b_scale[e, n], pad rows 0. Kernels multiply the sum with both scales in their order,
// and round to bf16; they add bf16 products in one chain, and e4m3 products in chains of
// `e4m3_chain` that are added in fp32. Bounds are as in grouped_gemm_exact(), but on the tensor
// cores the bounds of e4m3 chains assume products of random signs: a bound for any long chain would
// be as large as its sum.
GemmExact end_scaled_gemm_exact(const EndScaledOperands& operands, const Route& route,
                                std::int64_t e4m3_chain);

// Computes the same product as bf16 [rows, columns], with every rounding that kernels have except
// those within a chain: chains of `chain` products, the last one of what is left, are exact,
// rounded to fp32 and added in fp32 in ascending order, from 0. A kernel has these bits if the sum
// of each chain is exact on the tensor cores too, as is the sum of small integers times one power
// of two.
std::vector<std::uint16_t> end_scaled_gemm(const EndScaledOperands& operands, const Route& route,
                                           std::int64_t chain);

}  // namespace moejit::reference
