// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"
#include "compiler/planner/planner_steps.h"

#include <array>

namespace moejit::compiler {

void describe_scale_columns(OperationDraft& draft) {
  const ExpertRows rows = expert_rows(draft);
  draft.read("input", DType::kBF16, {rows.p, rows.columns});
  read_groups(draft, rows.e);
  draft.write("output_scale_inv", DType::kF32, {rows.e, rows.columns});
  draft.make(
      ScaleColumns{.groups = {.local_experts = int32_of(rows.e), .columns = int32_of(rows.columns)},
                   .format = Recipe::kFp8Rowwise.wgrad_operands},
      rows.bounds());
}

void describe_scale_weight_columns(OperationDraft& draft) {
  const ExpertMatrices matrices = expert_matrices(draft);
  draft.read("input", DType::kBF16, matrices.shape());
  draft.write("output_scale_inv", DType::kF32, {matrices.e, matrices.columns});
  draft.read_optional("skip", DType::kU32, 1);
  draft.make(
      ScaleColumns{.groups = matrices.groups(), .format = Recipe::kFp8Rowwise.weights_colwise},
      matrices.bounds());
}

void describe_amax_rows(OperationDraft& draft) {
  const ExpertRows rows = expert_rows(draft);
  draft.read("input", DType::kBF16, {rows.p, rows.columns});
  read_groups(draft, rows.e);
  draft.write("output", DType::kF32,
              {rows.p, {"ceil(columns/512)", magnitudes_of_row(rows.columns.value)}});
  draft.make(RowAmax{.local_experts = int32_of(rows.e), .columns = int32_of(rows.columns)},
             rows.bounds());
}

void describe_amax_weights(OperationDraft& draft) {
  const ExpertMatrices matrices = expert_matrices(draft);
  const MatrixAmax amax{.rows = int32_of(matrices.rows), .columns = int32_of(matrices.columns)};
  draft.read("input", DType::kBF16, matrices.shape());
  draft.write("output", DType::kF32, {matrices.e, {"ceil(rows*columns/16384)", pieces_of(amax)}});
  draft.read_optional("skip", DType::kU32, 1);
  draft.make(amax, matrices.bounds());
}

void describe_scale_experts(OperationDraft& draft) {
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  // Without rows an expert has a matrix.
  const Dim p{"P", draft.integer("max_permuted_rows", {.highest = kMaxPermutedRows}, 0)};
  const Dim magnitudes = draft.dim("magnitudes", "magnitudes", {.lowest = 1, .highest = 1 << 24});
  const DType dtype =
      draft.choice("dtype", std::array{DType::kF4E2M1x2, DType::kF8E4M3, DType::kF8E5M2});
  const bool has_rows = p.value > 0;
  draft.read("amax", DType::kF32, {has_rows ? p : e, magnitudes});
  if (has_rows) read_groups(draft, e);
  draft.write("scale", DType::kF32, {e});
  draft.write("scale_inv", DType::kF32, {e});
  if (!has_rows) draft.read_optional("skip", DType::kU32, 1);
  draft.make(ExpertScales{.format = {.dtype = dtype, .rule = ScaleRule::kQuotient},
                          .magnitudes = magnitudes.value},
             has_rows ? bounds_of_rows(p.value, e.value) : CallBounds{.groups = int32_of(e)});
}

void describe_swizzle_scales(OperationDraft& draft) {
  const ExpertRows rows = expert_rows(draft);
  const bool of_columns = draft.boolean("of_columns");
  const Recipe recipe = draft.choice(
      "recipe", recipes_where([](const Recipe& one) { return one.wgrad_operands.is_recovered; }));
  const Format format = codes_of(recipe.wgrad_operands);
  const bool has_levels = has_two_levels(format);
  const ScaledTensor cast = of_columns ? scaled_columns("", {}, rows.p, rows.columns, format)
                                       : scaled_rows("", {rows.p}, rows.columns, format);
  draft.read("input", cast.scales_dtype, cast.scales_shape, cast.scales);
  read_column_groups(draft, rows.e);
  // Groups of 16 have twice as many scales as groups of 32, and so tiles.
  draft.write("output", cast.scales_dtype,
              {rows.column_blocks(), blocks_of(rows.columns), fixed(has_levels ? 1024 : 512)},
              Layout::kScalesSwizzled);
  const int32_t group = has_levels ? 16 : 32;
  draft.make(SwizzleScalesSpec{.of_columns = of_columns,
                               .group = group,
                               .local_experts = int32_of(rows.e),
                               .columns = int32_of(rows.columns)},
             {"tiles of 128 by 4 that restart at every expert, as Blackwell's GEMMs read them"},
             {"input", "counts", "offs", "output_offs", "output"}, rows.bounds(group));
}

}  // namespace moejit::compiler
