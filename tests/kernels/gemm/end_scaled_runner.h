// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/end_scaled_gemm.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <cstdint>
#include <vector>

namespace moejit::testing {

// Returns integers from -2 to 2 and, where `spec` has scales, powers of two from 1/4 to 4, the same
// for all rows or columns of an expert where it has one for these: sums of any order are exact.
reference::EndScaledOperands integer_operands(const compiler::GroupedGemmSpec& spec,
                                              const reference::Route& route, uint64_t seed = 1);
// Returns normal numbers, those of FP8 64 times larger, and scales between 1/2 and 2 of any bits.
reference::EndScaledOperands random_operands(const compiler::GroupedGemmSpec& spec,
                                             const reference::Route& route, uint64_t seed = 3);
// Returns such integers times a power of two from 2^-16 to 2^14 for each row, column and 128 of k,
// where the second half of these undoes the first: sums of 128 products are exact on the tensor
// cores, and what is left of all of them is how adding those was rounded.
reference::EndScaledOperands cancelling_operands(const compiler::GroupedGemmSpec& spec,
                                                 const reference::Route& route, uint64_t seed = 5);
// Returns such integers, and scales that bring a column of each expert's first row to the middle
// between two bf16 numbers: each rounding on the way there may decide which of them it becomes.
reference::EndScaledOperands halfway_operands(const compiler::GroupedGemmSpec& spec,
                                              const reference::Route& route, uint64_t seed = 7);

// What distinguishes the kernels that are tested together.
struct EndScaledKind {
  compiler::GemmScales scales = compiler::GemmScales::kNone;  // bf16 operands where none
  compiler::GemmAccumulation accumulation = compiler::GemmAccumulation::kFp32;
  bool is_swapped = false;
  compiler::Major b_major = compiler::Major::kK;
  bool is_a_e5m2 = false;
  bool is_bf16 = false;            // kTensor: whether operands are bf16
  bool has_clusters = false;       // whether two CTAs share B
  bool is_widest = false;          // whether tiles have 256 columns, from 256 columns on
  bool has_column_halves = false;  // whether warpgroups halve columns, as on targets without WGMMA
};

// A fixture for grouped GEMMs whose scales, if any, are applied at the end.
class EndScaledGemmTest : public Chains {
 protected:
  // The planner's tiles; swapped ones for `largest_group` rows.
  static compiler::GroupedGemmSpec problem(const EndScaledKind& kind, int32_t experts,
                                           int32_t sections, int32_t section_n, int32_t k,
                                           int64_t largest_group = 64);

  // D [offs[E], N]; pad rows of A are NaN, and so are their scales. Expects that nothing behind D
  // was written.
  std::vector<uint16_t> multiply(const compiler::GroupedGemmSpec& spec,
                                 const reference::Route& route,
                                 const reference::EndScaledOperands& operands, int64_t ctas = 3);

  // As GemmTest's.
  void expect_exact(const compiler::GroupedGemmSpec& spec, const reference::Route& route,
                    uint64_t seed = 1);
  void expect_exact(const compiler::GroupedGemmSpec& spec, const reference::Route& route,
                    const reference::EndScaledOperands& operands);
  // Expects the bits of chains of `chain` products that fp32 adds.
  void expect_bits(const compiler::GroupedGemmSpec& spec, const reference::Route& route,
                   const reference::EndScaledOperands& operands, int64_t chain);
};

}  // namespace moejit::testing
