// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/bias_gradient.h"
#include "compiler/kernels/contraction_grouped_gemm.h"
#include "compiler/kernels/grouped_gemm.h"
#include "compiler/recipe.h"

#include <cstdint>

namespace moejit::compiler {

// Multiplies the rows of each group with its group's matrix: D = A * B[e]^T. Reads a [P, k], b [E,
// N, k], or [E, k, N] if MN-major, counts and offs; where B is two tensors b and b_up. With a bias
// it reads bias [E, N], and probs [P] if the bias is multiplied by them. Writes d [P, N].
struct GroupedGemm {
  GroupedGemmSpec problem;  // all but its tiles
};

// Multiplies as GroupedGemm does, where N has gate and up, and activates and weighs the result; and
// quantizes it where q has scales. Reads a, b, probs, counts and offs, and b_up and bias if there
// are any.
// Writes q [P, N / 2], and d if wanted.
struct GroupedGemmActivation {
  GroupedGemmSpec problem;  // all but its tiles and epilogue, which follows from the writes
};

// Sets the operands and scales of a problem from the formats of A and B.
void set_formats(GroupedGemmSpec& problem, const Format& a, const Format& b);

// Multiplies along the tokens of each group: D[e] = A * B^T. Reads a and b. They are blocks of 128
// columns with a scale for each tile [C / 128, rows, 128], or bf16 in permuted order [P, rows].
// Also reads counts, and offs, where the groups of these columns start. Writes d [E, rows, n]; of
// separate sections d and d_up, [E, section_rows, n].
struct Wgrad {
  ContractionGroupedGemmSpec problem;  // all but its tiles
};

// Adds up the rows of each group. Reads input [P, sections * pitch], counts and offs; also probs
// [P] if each row is multiplied by its probability. Writes output [E, sections * section_columns].
struct BiasGradient {
  ColumnSumsSpec spec;  // all but the input's type
};

// Computes the part of the probability's gradient that comes from a bias multiplied by the
// probability. It is the product of each row with the bias of its group. Reads input [P, columns],
// bias [E, columns], counts and offs. Writes output [P].
struct BiasDprobs {
  int32_t local_experts = 0;
  int32_t columns = 0;
};

}  // namespace moejit::compiler
