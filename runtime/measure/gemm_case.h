// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "compiler/operation.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::measure {

enum class GemmOperation {
  kGroupedGemm,  // D[P, n] = A[P, k] * B[group][n, k]^T for the rows of each group
  // D[group][rows, n] = A[rows, columns of the group] * B[n, columns of the group]^T: wgrad
  kContractionGroupedGemm,
};
std::string_view to_string(GemmOperation operation);

// A GEMM to measure alone. docs/cli.md describes each field under the same name, with its range.
struct GemmCase {
  std::string name;
  GemmOperation operation = GemmOperation::kGroupedGemm;
  int32_t groups = 0;
  int32_t rows_per_group = 0;
  bool is_ragged = false;          // groups differ by up to 30 % from their size
  int32_t splits_alignment = 128;  // each group starts at a multiple of this
  int32_t n = 0;
  // Fields of a row-grouped GEMM only, as rows_per_group is.
  int32_t k = 0;
  int32_t sections = 1;
  compiler::GemmScales scales = compiler::GemmScales::kRowBlock;  // kNone: bf16 operands
  compiler::GemmAccumulation accumulation = compiler::GemmAccumulation::kFp32;  // of either kind
  int32_t scale_sharing_k = 1;
  // Fields of a contraction-grouped GEMM only.
  int32_t columns_per_group = 0;
  int32_t rows = 0;
  compiler::GradientScales gradient_scales = compiler::GradientScales::kTile;  // "scales"
  compiler::GradientOutput output = compiler::GradientOutput::kF32;
  bool operator==(const GemmCase&) const = default;
};

bool is_row_grouped(const GemmCase& gemm);
// Returns the rows of a group, or the columns for a contraction-grouped GEMM, if none is ragged.
int32_t group_size(const GemmCase& gemm);
// Returns the most rows or columns that all groups together can have, pad rows included.
int64_t most_rows(const GemmCase& gemm);

// The places of the groups' rows, or columns; equal cases have equal places.
struct GemmGroups {
  std::vector<int32_t> counts;  // [groups] real rows
  std::vector<int32_t> offs;    // [groups + 1] first row of each
  int64_t real_rows() const;
  int64_t rows() const { return offs.back(); }
};
GemmGroups make_groups(const GemmCase& gemm);

// Returns E4M3, or BF16 for a row-grouped GEMM without scales.
compiler::DType operands_of(const GemmCase& gemm);

// Returns the operation that computes the case over groups of so many rows, or columns, in all.
compiler::OperationDescription operation_of(const GemmCase& gemm, int64_t rows);

}  // namespace moejit::measure
