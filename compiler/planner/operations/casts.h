// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/block_cast.h"
#include "compiler/kernels/transpose.h"
#include "compiler/kernels/weight_check.h"
#include "compiler/planner/operations/scales.h"
#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

// Says why a kernel may read rows of tokens that are not in the order of experts.
inline constexpr const char* kFetchedReason =
    "each row is fetched from its token, which L2 holds for the other experts of the token";

enum class QuantizeStage;

// Quantizes the weights of all experts in tiles of 128x128. Reads input [E, sections *
// section_rows, columns] and skip [1], a word that makes the kernel do nothing if it is not 0.
// Parts that are separate are input and input_up, [E, section_rows, columns]. Writes output [E,
// sections * section_rows, columns], and output_colwise, its transposes, if wanted.
struct QuantizeWeights {
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t tiles_per_scale = 1;
  float epsilon = 0.0f;
  bool is_interleaved = false;  // whether rows of gate and up alternate in the input only
  bool is_separate = false;     // whether gate and up are tensors of their own in the input only
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

// Casts values to an operand of wgrad, with a scale for 128 tokens of each column. Reads input [P,
// columns] in bf16, or [T, columns] and row_tokens if rows are gathered. Reads counts, offs and
// output_offs, the starts of the groups of columns. Writes output [C / 128, columns, 128].
struct QuantizeColumns {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Format format = {};
  RowSource source = RowSource::kInOrder;
};

// Casts bf16 rows in blocks of 32 or 16 elements, by rows, by columns, or both from one read. Reads
// input [P, columns], counts and offs, or [T, columns] and also row_tokens if rows are gathered.
// Matrices are [E, matrix_rows, columns], with skip [1], a word that makes the kernel do nothing if
// it is not 0. If scales have two levels it reads expert_scales [E] too, without experts [1].
// Writes output, cast by rows, and output_colwise, cast by columns, of the input's shape; each of
// them only if wanted. Codes in blocks of 16 are packed, those by columns transposed.
struct CastBlocks {
  int32_t local_experts = 0;  // 0: all rows are real, and have one scale above the blocks' scales
  int32_t matrix_rows = 0;    // 0: rows belong to groups
  int32_t columns = 0;
  Format format = {};  // of either output
  RowSource source = RowSource::kInOrder;
  bool starts_anywhere = false;  // whether groups start at any row; values in blocks of 32 alone
};

// Casts rows of tokens with the known scale of each expert that they go to. It also makes an
// operand of wgrad of the same codes, with one read for both. Reads input [T, columns] in bf16,
// row_tokens [P], counts, offs and output_offs, the starts of the groups of columns, and
// expert_scales [E]. Writes output_colwise [C / 128, columns, 128], and output [P, columns] if
// wanted.
struct CastTranspose {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Format format = {};        // of the output
  bool zeroes_rows = false;  // whether rows become zeros that row_tokens marks as zeros
  AmaxColumns amax = {};     // columns of a state amax, which a cast raises to largest magnitudes
};

// Turns quantized rows into an operand of wgrad, without quantizing them again. Reads input [P,
// columns], or [T, columns] and row_tokens if rows are gathered; counts, offs and output_offs, the
// starts of the groups of columns. Writes output [C / 128, columns, 128].
struct Transpose {
  int32_t local_experts = 0;
  int32_t columns = 0;
  RowSource source = RowSource::kInOrder;
  DType format = DType::kF8E4M3;
  bool keeps_bytes = false;  // whether rows of a group have one scale, which the operand keeps
};

// Looks whether weights have changed. Reads w1 and w2 and skip [1], a word that makes them count as
// unchanged if it is not 0. Reads and writes digest, whose first word the casts behind it take as
// their skip. Sets status [1] to 0 if there is one: a fill of its own takes 5 us of a graph.
struct CheckWeights {
  WeightCheckSpec spec;
};

}  // namespace moejit::compiler
