// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/planner/operations/group_columns.h"
#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

enum class QuantizeStage;
struct KernelContext;
struct KernelPlan;
struct Operation;

// Quantizes the weights of all experts in tiles of 128x128. Reads input [E, sections *
// section_rows, columns] and skip [1], a word that makes the kernel do nothing if it is not 0.
// Writes output, of the same shape, and output_colwise, its transposes, if wanted.
struct QuantizeWeights {
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t tiles_per_scale = 1;
  float epsilon = 0.0f;
  bool is_interleaved = false;  // whether rows of gate and up alternate in the input only
  // Whether each expert has one scale: reads expert_scales [E] too.
  bool has_expert_scale = false;
  AmaxColumns amax = {};  // columns of a state amax, which a cast raises to largest magnitudes
};

// Quantizes the rows of matrices, each with a scale of its own. Reads input [E, sections *
// section_rows, columns] and skip [1], and writes output of the same shape, as QuantizeWeights
// does.
struct QuantizeMatrixRows {
  ColumnGroups matrices;
  Format format = {};
};

// Quantizes rows. Reads input [T, columns], writes output [T, columns].
struct QuantizeRows {
  int32_t columns = 0;
  Format format = {};
  int32_t blocks_per_scale = 1;  // neighboring blocks of a row that share a scale
  std::string_view reason = {};  // why the cast is needed
};

// Return the stage of row chains that quantizes in this format. The two functions are for computed
// values and for rows in bf16, for which there is nothing to round.
QuantizeStage quantize_stage(const Format& format, int32_t blocks_per_scale);
QuantizeStage quantize_stage_of_bf16(Format format, int32_t blocks_per_scale);

KernelPlan make_kernel(const Operation& operation, const QuantizeWeights& weights,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const QuantizeMatrixRows& rows,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const QuantizeRows& rows,
                       const KernelContext& context);
inline void narrow(Operation&, const QuantizeWeights&) {}
inline void narrow(Operation&, const QuantizeMatrixRows&) {}
inline void narrow(Operation&, const QuantizeRows&) {}

}  // namespace moejit::compiler
