// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the format that a cast writes: codes with scales, or where the description says so the
// values of both, in bf16.
Format stored_format(OperationDraft& draft, const Recipe& recipe, const Format& format) {
  const CastResult result =
      draft.choice("result", std::array{CastResult::kCodes, CastResult::kValues});
  if (result == CastResult::kCodes) return codes_of(format);
  if (recipe != Recipe::kMxfp8)
    draft.refuse("result", fmt::format("with the recipe {}", recipe.name), "\"codes\"",
                 "bf16 holds the values of mxfp8 alone");
  return format;
}

// Returns the format of the tensors of such a cast: values are bf16 without scales.
Format tensor_format(const Format& format) { return format.is_recovered ? Format{} : format; }

}  // namespace

void describe_quantize(OperationDraft& draft) {
  const Dim t = draft.dim("T", "max_tokens", kTokensRange);
  const Dim columns = draft.dim("columns", "columns", kWidthRange);
  const Recipe recipe =
      draft.choice("recipe", recipes_where([](const Recipe& one) {
                     return is_quantized(one.tokens) && !has_expert_scale(one.tokens);
                   }));
  const Format format = stored_format(draft, recipe, recipe.tokens);
  const int32_t blocks = blocks_per_scale(draft, recipe);
  const CallBounds bounds{.max_tokens = t.value};
  draft.read("input", DType::kBF16, {t, columns});
  if (has_two_levels(format)) draft.read("expert_scales", DType::kF32, {fixed(1)});
  draft.write(scaled_rows("output", {t}, columns, tensor_format(format)));
  if (has_two_levels(format))
    return draft.make(CastBlocks{.columns = int32_of(columns), .format = format}, bounds);
  draft.make(QuantizeRows{.columns = int32_of(columns),
                          .format = format,
                          .blocks_per_scale = blocks,
                          .reason = format.scale == ScaleOf::k1x32
                                        ? "one E8M0 scale for a row and 32 columns"
                                    : has_row_scale(format)
                                        ? "one power-of-two scale for a row, which is read once"
                                        : "one power-of-two scale for a row and 128 columns"},
             bounds);
}

void describe_quantize_weights(OperationDraft& draft) {
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  // Equal parts of the rows; tiles restart at each part.
  const int32_t sections = draft.int32("sections", {.lowest = 1, .highest = 2}, 1);
  const Dim rows = draft.dim("rows", "rows", rows_of_sections(sections));
  const Dim columns = draft.dim("columns", "columns", kWidthRange);
  const int32_t tiles_per_scale = draft.int32("scale_sharing_k", kScaleSharingRange, 1);
  const bool is_interleaved = interleaves_sections(draft, sections);
  // Tiles are the same in all recipes that have them.
  const Recipe recipe = draft.choice(
      "recipe", std::array{Recipe::kFp8Flow, Recipe::kMxfp8, Recipe::kNvfp4, Recipe::kFp8Rowwise});
  const bool is_colwise = draft.boolean("colwise");  // whether the operand of dgrad is written too
  const bool is_rowwise = draft.boolean("rowwise", true);
  const Format format = stored_format(draft, recipe, recipe.weights);
  const CallBounds bounds{.groups = int32_of(e)};

  if (!is_rowwise && (recipe != Recipe::kMxfp8 || !is_colwise))
    draft.refuse("rowwise", fmt::format("with the recipe {}", recipe.name), "true",
                 "casts of mxfp8 with \"colwise\" true are made alone");
  draft.read("input", DType::kBF16, {e, rows, columns});
  if (has_two_levels(format)) draft.read("expert_scales", DType::kF32, {e});
  if (has_row_scale(format)) {
    const std::string beside = fmt::format("with the recipe {}", recipe.name);
    if (tiles_per_scale > 1)
      draft.refuse("scale_sharing_k", beside, "1", "a row of the recipe has one scale");
    if (is_colwise)
      draft.refuse("colwise", beside, "false",
                   "scale_weight_columns and quantize_weight_columns make the operand of dgrad");
    draft.write(scaled_rows("output", {e, rows}, columns, format));
    draft.read_optional("skip", DType::kU32, 1);
    return draft.make(QuantizeMatrixRows{.matrices = {.local_experts = int32_of(e),
                                                      .columns = int32_of(columns),
                                                      .sections = sections,
                                                      .section_rows = int32_of(rows) / sections,
                                                      .is_interleaved = is_interleaved},
                                         .format = format},
                      bounds);
  }
  if (recipe.weights.is_recovered) {
    // The contraction goes by rows in fprop and by columns in dgrad.
    const Format stored = tensor_format(format);
    if (is_rowwise) draft.write(scaled_rows("output", {e, rows}, columns, stored));
    if (is_colwise) draft.write(scaled_columns("output_colwise", {e}, rows, columns, stored));
    draft.read_optional("skip", DType::kU32, 1);
    draft.make(CastBlocks{.local_experts = int32_of(e),
                          .matrix_rows = int32_of(rows),
                          .columns = int32_of(columns),
                          .format = format},
               bounds);
    const int64_t group = has_two_levels(format) ? 16 : 32;
    if (rows.value % group == 0 && sections == 1 && tiles_per_scale == 1) return;
    const auto refusal =
        fail(Stage::kPlan, ErrorCode::kUnsupported,
             fmt::format("quantize_weights: got {} rows in {} sections with scale_sharing_k {}, "
                         "wanted a multiple of {} in one section with scale_sharing_k 1",
                         rows.value, sections, tiles_per_scale, group),
             fmt::format("the groups of {} of the recipe {} run over gate and up as they lie, "
                         "and share no scales",
                         group, recipe.name));
    return draft.make([refusal](const Target&, const PlanOptions&) { return refusal; });
  }
  const int64_t section_rows = rows.value / sections;
  const Dim row_tiles{"row tiles", sections * ((section_rows + 127) / 128)};
  // Zeros fill up each of several sections, so that no tile lies in two of them.
  const Dim padded = sections == 1 ? rows : Dim{"rows'", 128 * row_tiles.value};
  draft.write({.role = "output",
               .shape = {e, rows, columns},
               .scales_shape = {e, row_tiles, blocks_of(columns)},
               .scales = Layout::kScalesTiles});
  if (is_colwise)
    draft.write({.role = "output_colwise",
                 .shape = {e, columns, padded},
                 .scales_shape = {e, blocks_of(columns), row_tiles},
                 .scales = Layout::kScalesTiles});
  draft.read_optional("skip", DType::kU32, 1);
  draft.make(QuantizeWeights{.local_experts = int32_of(e),
                             .sections = sections,
                             .section_rows = static_cast<int32_t>(section_rows),
                             .columns = int32_of(columns),
                             .tiles_per_scale = tiles_per_scale,
                             .is_interleaved = is_interleaved},
             bounds);
}

namespace {

// Describes a cast with a scale for 32 tokens of a column, which stay where they are, or for 16
// tokens, which are transposed. If wanted, it also casts with a scale for as many columns of a row.
// Values have no scales that belong to multiples of 32 tokens, so groups start anywhere.
void describe_columns_in_blocks(OperationDraft& draft, const ExpertRows& rows, const Format& format,
                                bool is_rowwise) {
  draft.read("input", DType::kBF16, {rows.p, rows.columns});
  read_groups(draft, rows.e);
  if (has_two_levels(format)) draft.read("expert_scales", DType::kF32, {rows.e});
  const Format stored = tensor_format(format);
  if (is_rowwise) draft.write(scaled_rows("output", {rows.p}, rows.columns, stored));
  draft.write(scaled_columns("output_colwise", {}, rows.p, rows.columns, stored));
  draft.make(CastBlocks{.local_experts = int32_of(rows.e),
                        .columns = int32_of(rows.columns),
                        .format = format,
                        .starts_anywhere = format.is_recovered},
             rows.bounds(format.is_recovered      ? 1
                         : has_two_levels(format) ? 16
                                                  : 32));
}

}  // namespace

void describe_quantize_columns(OperationDraft& draft) {
  const ExpertRows rows = expert_rows(draft);
  const Recipe recipe = draft.choice("recipe", recipes_where([](const Recipe& one) {
                                       return is_cast_from_values(one.wgrad_operands);
                                     }));
  const Format& format = recipe.wgrad_operands;
  const bool is_rowwise = draft.boolean("rowwise");
  if (is_rowwise && !format.is_recovered)
    draft.refuse("rowwise", fmt::format("with the recipe {}", recipe.name), "false",
                 "only mxfp8 and nvfp4 have casts by rows and columns of one read");
  const Format stored = stored_format(draft, recipe, format);
  if (format.is_recovered) return describe_columns_in_blocks(draft, rows, stored, is_rowwise);
  const bool has_known_scales = format.scale == ScaleOf::kColumn;
  const Dim blocks = rows.column_blocks();
  draft.read("input", DType::kBF16, {rows.p, rows.columns});
  if (has_known_scales) draft.read_scales("input", {rows.e, rows.columns});
  read_column_groups(draft, rows.e);
  draft.write(
      {.role = "output",
       .shape = {blocks, rows.columns, fixed(128)},
       .scales_shape = has_known_scales ? std::vector<Dim>{} : std::vector{blocks, rows.columns},
       .scales = Layout::kScalesColumns});
  if (has_known_scales)
    return draft.make(CastColumns{.groups = {.local_experts = int32_of(rows.e),
                                             .columns = int32_of(rows.columns)}},
                      rows.bounds());
  draft.make(
      QuantizeColumns{
          .local_experts = int32_of(rows.e), .columns = int32_of(rows.columns), .format = format},
      rows.bounds());
}

void describe_quantize_weight_columns(OperationDraft& draft) {
  const ExpertMatrices matrices = expert_matrices(draft);
  draft.read("input", DType::kBF16, matrices.shape());
  draft.read_scales("input", {matrices.e, matrices.columns});
  draft.write({.role = "output",
               .shape = {matrices.e, matrices.columns, matrices.rows},
               .scales_shape = {}});
  draft.read_optional("skip", DType::kU32, 1);
  draft.make(CastColumns{.groups = matrices.groups()}, matrices.bounds());
}

void describe_transpose(OperationDraft& draft) {
  const ExpertRows rows = expert_rows(draft);
  const DType dtype = draft.choice("dtype", std::array{DType::kF8E4M3, DType::kF8E5M2});
  const TransposeRule rule =
      draft.choice("rule", std::array{TransposeRule::kIdeal, TransposeRule::kForkCompat});
  const bool counts_flushed = draft.boolean("count_flushed");
  const Dim blocks = rows.column_blocks();
  draft.read(
      scaled_rows("input", {rows.p}, rows.columns, {.dtype = dtype, .scale = ScaleOf::k1x128}));
  read_column_groups(draft, rows.e);
  draft.write({.role = "output",
               .shape = {blocks, rows.columns, fixed(128)},
               .scales_shape = {blocks_of(rows.columns), blocks},
               .scales = Layout::kScalesTiles,
               .dtype = dtype});
  if (counts_flushed) draft.write("flushed", DType::kI64, {fixed(1)});
  draft.write_optional("status", DType::kU32, 1);
  draft.make(TransposeSpec{.format = dtype,
                           .rule = rule,
                           .local_experts = int32_of(rows.e),
                           .columns = int32_of(rows.columns),
                           .counts_flushed = counts_flushed},
             {"bytes are multiplied by powers of two: nothing is quantized again"},
             {"input", "counts", "offs", "output_offs", "output", "status", "flushed"},
             rows.bounds());
}

void describe_multi_cast_transpose(OperationDraft& draft) {
  const MultiCastTransposeSpec spec{
      .input = draft.choice("input_dtype", std::array{DType::kBF16, DType::kF32}),
      .output = draft.choice("output_dtype", std::array{DType::kF8E4M3, DType::kF8E5M2})};
  const std::vector<MatrixSize> sizes = draft.sizes("sizes");
  CallBounds bounds{.list_length = std::ssize(sizes)};
  for (const MatrixSize& size : sizes) bounds.list_elements += size.rows * size.columns;
  if (!sizes.empty()) bounds.list_tiles = cast_transpose_tile_ends(sizes).back();
  const Dim n{"N", bounds.list_length};
  draft.read("tensors", DType::kI64, {n, fixed(8)});
  draft.read("tile_ends", DType::kI64, {n});
  draft.read_optional("skip", DType::kU32, 1);
  draft.make(spec,
             {"one launch for any number of tensors of any sizes: a CTA looks up whose tile it has",
              "both orientations and the largest magnitude from one read"},
             {"tensors", "tile_ends", "skip"}, bounds);
}

}  // namespace moejit::compiler
