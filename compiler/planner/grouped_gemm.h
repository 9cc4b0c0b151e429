// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::compiler {

// How many tiles cover the columns of a section: wide ones first, then narrow ones.
struct ColumnTiles {
  int32_t wide = 0;
  int32_t narrow = 0;
  bool operator==(const ColumnTiles&) const = default;
};

// The cover of `columns` (at least 1) by tiles of GroupedGemmSpec's widths that wastes the fewest;
// of several the one with the fewest tiles.
ColumnTiles choose_column_tiles(int64_t columns);

// Completes a spec whose problem is set and passes check_grouped_gemm() (operands, scales,
// accumulation, epilogue, local_experts, sections, section_n, k, and blocks_per_promotion where
// scales are of blocks, which may share them): chooses the column tiles, makes one section of all
// where no scale block lies in two and the epilogue does not join them, and says how long partial
// sums are that meet no scale.
GroupedGemmSpec choose_tiles(GroupedGemmSpec problem);

// Returns the most rows that an expert can have in the mean of a call.
int64_t mean_rows(const CallBounds& bounds);

// Up to that many rows of an expert in the mean, tiles are swapped.
inline constexpr int64_t kMostSwappedRows = 64;

// Whether tiles may be swapped: an MN-major B stays the n side of WGMMA.
bool may_be_swapped(const GroupedGemmSpec& problem);

// The same with swapped tiles, of as many rows as the largest group has (1 or more), up to 64, and
// with as many stages as fit into shared memory. Larger groups are right too, but slower. Not for
// epilogues that join gate and up.
GroupedGemmSpec choose_swapped_tiles(GroupedGemmSpec problem, int64_t largest_group);

// Sentences for what choose_tiles() or choose_swapped_tiles() made of a problem.
std::vector<std::string> tile_reasons(const GroupedGemmSpec& problem, const GroupedGemmSpec& spec);

// Names of tensors in a plan: A [P, k], B [E, N, k], and what the epilogue stores of D [P, N] and
// its activation Q [P, section_n]; the scales of A, B and Q; the factors of Q's rows, and of the
// bias, [P]; the bias [E, N].
struct GemmTensors {
  std::string a;
  std::string b;
  std::string d = {};
  std::string q = {};
  std::string a_scale_inv = {};
  std::string b_scale_inv = {};
  std::string q_scale_inv = {};
  std::string probs = {};
  std::string bias = {};
};

// `matrices` of bf16 [k, elements] in boxes of 64 by one step of the contraction.
TensorBox mn_major_box(int64_t elements, int64_t k, int64_t matrices);

// The tensor maps of a grouped GEMM's parameter record; `rows` is P. Swapped tiles store D without
// one.
std::vector<TensorMapPlan> grouped_gemm_tensor_maps(const GroupedGemmSpec& spec, int64_t rows,
                                                    const GemmTensors& tensors);

// A grouped GEMM of P = `rows` permuted rows with the tiles chosen in `spec`, all but operation,
// launch and work. Group sizes are in the tensors "counts" and "offs".
KernelPlan grouped_gemm_kernel(const GroupedGemmSpec& problem, const GroupedGemmSpec& spec,
                               int64_t rows, const GemmTensors& tensors);

}  // namespace moejit::compiler
