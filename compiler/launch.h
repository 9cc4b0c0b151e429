// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::compiler {

// How kernels are launched. The planner asks for the layer's largest call, the runtime for each
// call; neither knows the routing. Pure functions.

// Returns threads, shared memory and CTAs per SM of a kernel; max_ctas is left at 1.
LaunchShape launch_shape(const KernelSpec& spec);

// Returns the numbers of a kernel's parameter record.
std::vector<KernelNumber> kernel_numbers(const KernelSpec& spec, const CallBounds& bounds);

// Returns how many CTAs T tokens give work to, whatever their routing. Results never depend on it.
int64_t busy_ctas(const KernelSpec& spec, const CallBounds& bounds, int64_t tokens);

// Return the same for one kernel alone: a chain over so many rows, one over so many matrices, and a
// GEMM of so many permuted rows, pad rows among them, in so many groups.
int64_t busy_ctas(const RowChainSpec& spec, int64_t rows);
int64_t busy_ctas(const TileChainSpec& spec, int64_t matrices);
int64_t busy_ctas(const GroupedGemmSpec& spec, int64_t rows, int64_t groups);
// Returns it for a GEMM that divides the contraction, whatever its groups hold.
int64_t busy_ctas(const ContractionGroupedGemmSpec& spec);
// Return it for a transpose into so many columns (a multiple of 128).
int64_t busy_ctas(const TransposeSpec& spec, int64_t output_columns);
int64_t busy_ctas(const GatedGradientSpec& spec, int64_t output_columns);

// The size of a matrix; either may be 0.
struct MatrixSize {
  int64_t rows = 0;
  int64_t columns = 0;
};
// Returns what a multi-cast-transpose wants as `tile_ends`: for each tensor of the list the 128x128
// tiles of it and of all before it. The last one is also the number of CTAs that have work.
std::vector<int64_t> cast_transpose_tile_ends(std::span<const MatrixSize> sizes);

// Returns the most permuted rows that T tokens can need, pad rows included: never more than the
// layer's P.
int64_t most_permuted_rows(const CallBounds& bounds, int64_t tokens);

// Returns C, the columns of wgrad's operands: every group starts at a multiple of 128.
int64_t gradient_columns(const CallBounds& bounds);
// Returns how many of these columns T tokens can fill, a multiple of 128.
int64_t most_gradient_columns(const CallBounds& bounds, int64_t tokens);

// Returns whether a row chain's input rows are those of the groups, P at most, rather than tokens.
bool walks_permuted_rows(const RowChainSpec& spec);

}  // namespace moejit::compiler
