// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gemm.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <vector>

namespace moejit::reference {

// Operands of a grouped product whose scales, where it has any, do not change along the
// contraction: one for each row and one for each column of the result. Scales of whole tensors are
// repeated; without scales all are 1.
struct EndScaledOperands {
  bool is_bf16 = false;      // else e4m3
  std::int64_t rows = 0;     // offs[E]
  std::int64_t columns = 0;  // of the result
  std::int64_t depth = 0;
  std::vector<float> a;        // [rows, depth], values that the format has
  std::vector<float> b;        // [experts, columns, depth], likewise
  std::vector<float> a_scale;  // [rows]
  std::vector<float> b_scale;  // [experts, columns]
};

// For every real row r of expert e: out[r, n] = (sum over k of a[r, k] * b[e, n, k]) * a_scale[r] *
// b_scale[e, n], pad rows 0. Kernels multiply the sum with the product of both scales rounded to
// fp32, and round to bf16; they add bf16 products in one chain, and e4m3 products in chains of
// `e4m3_chain` that are added in fp32. Bounds as in grouped_gemm_exact(), but those of e4m3 chains
// on the tensor cores are for products of either sign at random: a bound for any long chain would
// be as large as its sum.
GemmExact end_scaled_gemm_exact(const EndScaledOperands& operands, const Route& route,
                                std::int64_t e4m3_chain);

}  // namespace moejit::reference
