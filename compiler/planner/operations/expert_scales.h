// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Explains the kernels that look at rows before others cast them.
inline constexpr std::string_view kAmaxReason =
    "the scale of an expert is known only after a look at all of its rows; magnitudes are written, "
    "not the rows";

// Finds the largest magnitudes of the experts' matrices. Reads input [E, rows, columns] and skip
// [1], a word that makes the kernel do nothing if it is not 0. Writes output [E, pieces].
struct MatrixAmax {
  int32_t rows = 0;
  int32_t columns = 0;
};

// Finds the largest magnitudes of bf16 rows. Reads input [P, columns], counts and offs. Writes
// output [P, ceil(columns / 512)].
struct RowAmax {
  int32_t local_experts = 0;
  int32_t columns = 0;
};

// Returns how many magnitudes an expert's matrix has.
int64_t pieces_of(const MatrixAmax& amax);

// Finds a scale for each expert. Reads amax: [P, magnitudes] with counts and offs, or [E,
// magnitudes] of matrices, with skip [1]. Writes scale [E] and scale_inv [E].
struct ExpertScales {
  Format format = {};
  int64_t magnitudes = 0;
};

KernelPlan make_kernel(const Operation& operation, const MatrixAmax& amax,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const RowAmax& amax,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const ExpertScales& scales,
                       const KernelContext& context);
inline void narrow(Operation&, const MatrixAmax&) {}
inline void narrow(Operation&, const RowAmax&) {}
inline void narrow(Operation&, const ExpertScales&) {}

}  // namespace moejit::compiler
