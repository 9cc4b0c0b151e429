// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/packed_format.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace moejit::compiler {

// The elements that share a scale.
enum class ScaleOf {
  kNone,     // no scales: elements are the numbers themselves
  k1x128,    // 128 elements of a row
  k128x128,  // a tile; each of its rows and columns has the same scale
  k128x1,    // 128 elements of a column, which are tokens of one expert
  kExpert,   // all rows of an expert, or its matrix
  k1x32,     // 32 elements of a row
  k32x1,     // 32 elements of a column, which are tokens of one expert or rows of one matrix
  kRow,      // all elements of a row
  kColumn,   // all elements of a column, which are tokens of one expert
  k1x16,     // 16 elements of a row
  k16x1,     // 16 elements of a column, which are tokens of one expert
  k16x16,    // a tile of a matrix; each of its rows and columns has the same scale
  kSection,  // gate, up, or all of a matrix
};

// The rule for a scale, given the largest magnitude of its elements.
enum class ScaleRule {
  kPowerOfTwo,  // the largest power of two that keeps the elements in range (docs/recipes.md)
  kQuotient,    // the format's largest number over the largest magnitude, rounded to fp32
  kE8m0,        // the same as a byte of E8M0; 0 where all elements are 0
  kE4m3,        // a number of E4M3, below a scale in fp32 of the expert's rows or of its matrix
};

// The number format of a class of tensors, with its scales.
struct Format {
  DType dtype = DType::kBF16;
  ScaleOf scale = ScaleOf::kNone;
  ScaleRule rule = ScaleRule::kPowerOfTwo;
  float epsilon = 0.0f;         // the smallest amax that a scale is computed for
  bool rounds_to_bf16 = false;  // whether computed values are rounded to bf16 before they are cast
  // Whether GEMMs read the values that codes and scales give, stored in bf16: no GEMM takes scales
  // of this kind.
  bool is_recovered = false;
  // Whether matrices are packed tiles, which the caller made, and have finer scales within.
  PackedFormat packed = PackedFormat::kNone;

  bool operator==(const Format&) const = default;
};

constexpr bool is_quantized(const Format& format) { return format.scale != ScaleOf::kNone; }

// Returns whether tensors in this format are codes with scales beside them.
constexpr bool has_scales(const Format& format) {
  return is_quantized(format) && !format.is_recovered;
}
// Returns whether an expert's rows, or its matrix, have one scale, which is known only after a look
// at all of them.
constexpr bool has_expert_scale(const Format& format) { return format.scale == ScaleOf::kExpert; }

// Returns whether scales of blocks lie below one of all of an expert's rows, or of its matrix. In
// recovered values, codes times scales of blocks, this one scale is missing: it is a factor of
// complete sums.
constexpr bool has_two_levels(const Format& format) { return format.rule == ScaleRule::kE4m3; }
// Returns whether complete sums of products meet a factor of the expert's rows, or of its matrix.
constexpr bool has_expert_factor(const Format& format) {
  return has_expert_scale(format) || has_two_levels(format);
}
// Returns whether matrices are packed tiles.
constexpr bool is_packed(const Format& format) { return format.packed != PackedFormat::kNone; }
// Returns whether recovered matrices are the same values along either dimension.
constexpr bool has_square_blocks(const Format& format) { return format.scale == ScaleOf::k16x16; }

// Returns the format of the codes whose values a recovered format stores.
constexpr Format codes_of(Format format) {
  format.is_recovered = false;
  return format;
}

// Returns the type of the elements that tensors in this format store.
constexpr DType stored_dtype(const Format& format) {
  return format.is_recovered ? DType::kBF16 : format.dtype;
}

// Returns whether operands of wgrad in this format are cast from values. Others are made from rows
// that are quantized already, or are rows as they are.
constexpr bool is_cast_from_values(const Format& format) {
  return format.scale == ScaleOf::k128x1 || format.scale == ScaleOf::k32x1 ||
         format.scale == ScaleOf::kColumn || format.scale == ScaleOf::k16x1;
}

// Returns whether a row has one scale. Columns of matrices in such a format are cast from values.
constexpr bool has_row_scale(const Format& format) { return format.scale == ScaleOf::kRow; }

// A row of the table of recipes: the format of each class of tensors that GEMMs multiply.
// Everything that planning does for a recipe follows from its row; docs/recipes.md has the
// formulas.
struct Recipe {
  std::string_view name;
  Format tokens = {};             // x and its permuted rows, the rows of fc1
  Format activations = {};        // act, the rows of fc2
  Format weights = {};            // of fprop
  Format gradients = {};          // dy, its permuted rows, and dh1: what dgrad multiplies
  Format weights_colwise = {};    // of dgrad
  Format wgrad_operands = {};     // of both operands, whose contraction runs along the tokens; of
                                  // bytes that rows have already, these are the rows' formats
  bool shares_scales = false;     // whether neighboring blocks of rows may share a scale
  bool is_fprop_fast = false;     // whether tensor cores alone add up FP8 products of fprop
  bool is_backward_fast = false;  // the same of dgrad and wgrad
  // Whether scales follow from the largest magnitudes of the steps before, a state that calls read
  // and write, rather than from the values at hand.
  bool has_history = false;
  bool has_kernels = true;  // false: the name is known but refused

  bool operator==(const Recipe&) const = default;

  static const Recipe kBf16, kFp8Flow, kFp8Blockwise, kFp8Delayed, kFp8Current, kFp8Rowwise, kMxfp8,
      kNvfp4;
};

// The smallest amax that FP8-Flow-MoE's quantizer of activations and gradients computes a scale
// for. A row of zeros gets the scale 2^-42 and cannot raise the scales of its neighbors.
inline constexpr float kActivationEpsilon = 1e-10f;

inline constexpr Format kRows1x128{
    .dtype = DType::kF8E4M3, .scale = ScaleOf::k1x128, .epsilon = kActivationEpsilon};
inline constexpr Format kTiles128x128{.dtype = DType::kF8E4M3, .scale = ScaleOf::k128x128};

// MXFP4 weights that stay packed: E2M1 codes with a power of two for 32 of them, below the scale of
// a tile (templates/moejit_device/gemm/mxfp4_mainloop.cuh). kTiles128x128 can have the same values.
inline constexpr Format kPackedTiles{
    .dtype = DType::kF4E2M1x2, .scale = ScaleOf::k128x128, .packed = PackedFormat::kMxfp4};

// 4-bit weights beside rows in bf16, with scales in the tiles and one factor above them.
inline constexpr Format kPackedNvfp4{
    .dtype = DType::kF4E2M1x2, .scale = ScaleOf::kSection, .packed = PackedFormat::kNvfp4};
inline constexpr Format kPackedInt4{
    .dtype = DType::kU8, .scale = ScaleOf::kSection, .packed = PackedFormat::kInt4};

// The formats of Transformer Engine's Float8BlockScaling: amax 0 gives the scale 1, and values are
// in bf16 wherever they are cast.
inline constexpr Format kRoundedRows1x128{
    .dtype = DType::kF8E4M3, .scale = ScaleOf::k1x128, .rounds_to_bf16 = true};
inline constexpr Format kColumns128x1{
    .dtype = DType::kF8E4M3, .scale = ScaleOf::k128x1, .rounds_to_bf16 = true};

inline constexpr Format kExpertE4m3{
    .dtype = DType::kF8E4M3, .scale = ScaleOf::kExpert, .rule = ScaleRule::kQuotient};
inline constexpr Format kExpertE5m2{
    .dtype = DType::kF8E5M2, .scale = ScaleOf::kExpert, .rule = ScaleRule::kQuotient};

// The formats of microscaling, OCP MXFP8: a scale for 32 elements along the contraction.
inline constexpr Format kRows1x32{.dtype = DType::kF8E4M3,
                                  .scale = ScaleOf::k1x32,
                                  .rule = ScaleRule::kE8m0,
                                  .rounds_to_bf16 = true,
                                  .is_recovered = true};
inline constexpr Format kColumns32x1{.dtype = DType::kF8E4M3,
                                     .scale = ScaleOf::k32x1,
                                     .rule = ScaleRule::kE8m0,
                                     .rounds_to_bf16 = true,
                                     .is_recovered = true};

// The formats of NVFP4 as Transformer Engine has them. There is an E4M3 scale for 16 elements along
// the contraction, of weights for tiles of 16x16, below one of each expert.
inline constexpr Format kRows1x16{.dtype = DType::kF4E2M1x2,
                                  .scale = ScaleOf::k1x16,
                                  .rule = ScaleRule::kE4m3,
                                  .rounds_to_bf16 = true,
                                  .is_recovered = true};
inline constexpr Format kColumns16x1{.dtype = DType::kF4E2M1x2,
                                     .scale = ScaleOf::k16x1,
                                     .rule = ScaleRule::kE4m3,
                                     .rounds_to_bf16 = true,
                                     .is_recovered = true};
inline constexpr Format kTiles16x16{.dtype = DType::kF4E2M1x2,
                                    .scale = ScaleOf::k16x16,
                                    .rule = ScaleRule::kE4m3,
                                    .rounds_to_bf16 = true,
                                    .is_recovered = true};

// The smallest amax that torchao's row-wise casts compute a scale for: zeros get the scale 2^-48.
inline constexpr float kRowEpsilon = 1e-12f;

inline constexpr Format kWholeRows{.dtype = DType::kF8E4M3,
                                   .scale = ScaleOf::kRow,
                                   .epsilon = kRowEpsilon,
                                   .rounds_to_bf16 = true};
inline constexpr Format kWholeColumns{.dtype = DType::kF8E4M3,
                                      .scale = ScaleOf::kColumn,
                                      .epsilon = kRowEpsilon,
                                      .rounds_to_bf16 = true};

inline constexpr Recipe Recipe::kBf16{.name = "bf16"};
inline constexpr Recipe Recipe::kFp8Flow{.name = "fp8_flow",
                                         .tokens = kRows1x128,
                                         .activations = kRows1x128,
                                         .weights = kTiles128x128,
                                         .gradients = kRows1x128,
                                         .weights_colwise = kTiles128x128,
                                         .wgrad_operands = kTiles128x128,
                                         .shares_scales = true};
inline constexpr Recipe Recipe::kFp8Blockwise{.name = "fp8_blockwise",
                                              .tokens = kRoundedRows1x128,
                                              .activations = kRoundedRows1x128,
                                              .weights = kTiles128x128,
                                              .gradients = kRoundedRows1x128,
                                              .weights_colwise = kTiles128x128,
                                              .wgrad_operands = kColumns128x1};
inline constexpr Recipe Recipe::kFp8Delayed{.name = "fp8_delayed",
                                            .tokens = kExpertE4m3,
                                            .activations = kExpertE4m3,
                                            .weights = kExpertE4m3,
                                            .gradients = kExpertE5m2,
                                            .weights_colwise = kExpertE4m3,
                                            .wgrad_operands = kExpertE4m3,
                                            .is_fprop_fast = true,
                                            .has_history = true};
inline constexpr Recipe Recipe::kFp8Current{.name = "fp8_current",
                                            .tokens = kExpertE4m3,
                                            .activations = kExpertE4m3,
                                            .weights = kExpertE4m3,
                                            .gradients = kExpertE5m2,
                                            .weights_colwise = kExpertE4m3,
                                            .wgrad_operands = kExpertE4m3,
                                            .is_fprop_fast = true};
inline constexpr Recipe Recipe::kFp8Rowwise{.name = "fp8_rowwise",
                                            .tokens = kWholeRows,
                                            .activations = kWholeRows,
                                            .weights = kWholeRows,
                                            .gradients = kWholeRows,
                                            .weights_colwise = kWholeRows,
                                            .wgrad_operands = kWholeColumns,
                                            .is_fprop_fast = true,
                                            .is_backward_fast = true};
inline constexpr Recipe Recipe::kMxfp8{.name = "mxfp8",
                                       .tokens = kRows1x32,
                                       .activations = kRows1x32,
                                       .weights = kRows1x32,
                                       .gradients = kRows1x32,
                                       .weights_colwise = kColumns32x1,
                                       .wgrad_operands = kColumns32x1};
inline constexpr Recipe Recipe::kNvfp4{.name = "nvfp4",
                                       .tokens = kRows1x16,
                                       .activations = kRows1x16,
                                       .weights = kTiles16x16,
                                       .gradients = kRows1x16,
                                       .weights_colwise = kTiles16x16,
                                       .wgrad_operands = kColumns16x1};

// Returns whether the scales of a recipe may be rounded down to powers of two: quotients of the
// values at hand.
constexpr bool may_round_scales(const Recipe& recipe) {
  return recipe.tokens.rule == ScaleRule::kQuotient && !recipe.has_history;
}

// Returns whether weights have a scale for each tile of 128x128. Such a tile may be packed, and its
// cast joins gate and up that are two tensors.
constexpr bool has_weight_tiles(const Recipe& recipe) {
  return recipe.weights.scale == ScaleOf::k128x128;
}

// Returns whether weights are bf16 as they are. Packed ones may take their place.
constexpr bool has_plain_weights(const Recipe& recipe) { return !is_quantized(recipe.weights); }

// Returns the number of rows that groups of permuted rows must start at multiples of. Blocks and
// tiles of several tokens with one scale restart at every group.
constexpr int32_t least_splits_alignment(const Recipe& recipe, bool has_backward) {
  if (has_backward && recipe.wgrad_operands.scale == ScaleOf::k32x1) return 32;
  return has_two_levels(recipe.tokens) ? 16 : 1;
}

// Returns whether gradients may have either FP8 format: one scale for all rows of an expert leaves
// the choice between range and precision.
constexpr bool has_gradient_formats(const Recipe& recipe) {
  return recipe.gradients.scale == ScaleOf::kExpert;
}

// All recipes, in the order in which errors list them.
inline constexpr std::array kRecipes = {
    Recipe::kBf16,       Recipe::kFp8Flow,    Recipe::kFp8Blockwise, Recipe::kFp8Delayed,
    Recipe::kFp8Current, Recipe::kFp8Rowwise, Recipe::kMxfp8,        Recipe::kNvfp4};

constexpr std::string_view to_string(const Recipe& recipe) { return recipe.name; }

// Returns the recipe with this name; none if there is none.
inline std::optional<Recipe> find_recipe(std::string_view name) {
  const auto* const found = std::ranges::find(kRecipes, name, &Recipe::name);
  return found == kRecipes.end() ? std::nullopt : std::optional(*found);
}

}  // namespace moejit::compiler
