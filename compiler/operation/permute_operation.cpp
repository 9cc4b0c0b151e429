// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_parts.h"

namespace moejit::compiler {
namespace {

DType dtype_of(TopkProbsDtype probs) {
  return probs == TopkProbsDtype::kBf16 ? DType::kBF16 : DType::kF32;
}

// The dimensions of routed tokens: T, K and P.
struct TokenDims {
  explicit TokenDims(const RoutedTokens& tokens)
      : t{"T", tokens.max_tokens}, k{"K", tokens.top_k}, p{"P", tokens.max_permuted_rows} {}
  Dim t, k, p;
};

// Returns the format of the rows of an operation that quantizes.
const Format& rows_of(const PermutePadOperation& operation) {
  return operation.is_gradient ? operation.recipe.gradients : operation.recipe.tokens;
}

PermutePad kind_of(const PermutePadOperation& operation) {
  PermutePad kind{.columns = static_cast<int32_t>(operation.columns),
                  .experts = static_cast<int32_t>(operation.experts),
                  .local_experts = static_cast<int32_t>(operation.tokens.local_experts),
                  .top_k = static_cast<int32_t>(operation.tokens.top_k),
                  .probs = dtype_of(operation.topk_probs_dtype),
                  .has_two_levels = operation.format == RowFormat::kFp4};
  if (operation.quantizes)
    kind.quantize =
        QuantizeRows{.columns = kind.columns,
                     .format = codes_of(rows_of(operation)),
                     .blocks_per_scale = static_cast<int32_t>(operation.scale_sharing_k)};
  return kind;
}

}  // namespace

Result<OperationParts> parts_of(const RouteOperation& operation, const PlanContext& context) {
  const RoutedTokens& tokens = operation.tokens;
  const TokenDims d(tokens);
  const Dim e{"E", tokens.local_experts}, starts{"E+1", tokens.local_experts + 1};
  const DType ids = operation.topk_ids_dtype == TopkIdsDtype::kI64 ? DType::kI64 : DType::kI32;
  PartsBuilder parts;
  parts.read("topk_ids", ids, {d.t, d.k});
  parts.write("counts", DType::kI32, {e});
  parts.write("offs", DType::kI32, {starts});
  if (operation.colwise_offs) parts.write("colwise_offs", DType::kI32, {starts});
  parts.write("row_map", DType::kI32, {d.t, d.k});
  parts.write("status", DType::kU32, {fixed(1)});
  return std::move(parts).make(
      Route{.local_experts = static_cast<int32_t>(tokens.local_experts),
            .top_k = static_cast<int32_t>(tokens.top_k),
            .splits_alignment = static_cast<int32_t>(tokens.splits_alignment),
            .topk_ids = ids,
            .ignores_foreign = operation.foreign_experts == ForeignExperts::kIgnore},
      bounds_of(tokens), context);
}

Result<OperationParts> parts_of(const PermutePadOperation& operation, const PlanContext& context) {
  const TokenDims d(operation.tokens);
  const Dim columns = columns_of(operation.columns);
  PartsBuilder parts;
  parts.read_rows("input", operation.quantizes ? RowFormat::kBf16 : operation.format, d.t, columns,
                  rows_of(operation));
  if (!operation.is_gradient) parts.read("probs", dtype_of(operation.topk_probs_dtype), {d.t, d.k});
  parts.read("row_map", DType::kI32, {d.t, d.k});
  read_groups(parts, operation.tokens.local_experts);
  parts.write_rows("output", operation.format, d.p, columns, rows_of(operation));
  if (!operation.is_gradient) parts.write("output_probs", DType::kF32, {d.p});
  if (operation.row_tokens) parts.write("row_tokens", DType::kI32, {d.p});
  if (operation.keeps_rows) {
    PartsBuilder::Scaled kept = scaled_rows("kept_output", d.t, columns, rows_of(operation));
    kept.scales_name = "kept_scale_inv";
    parts.write(std::move(kept));
  }
  CallBounds bounds = bounds_of(operation.tokens);
  bounds.experts = operation.experts;
  return std::move(parts).make(kind_of(operation), bounds, context);
}

Result<OperationParts> parts_of(const UnpermuteOperation& operation, const PlanContext& context) {
  const TokenDims d(operation.tokens);
  const Dim columns = columns_of(operation.columns);
  Unpermute kind{.columns = static_cast<int32_t>(operation.columns),
                 .top_k = static_cast<int32_t>(operation.tokens.top_k)};
  PartsBuilder parts;
  parts.read("input", DType::kBF16, {d.p, columns});
  parts.read("row_map", DType::kI32, {d.t, d.k});
  parts.write("output", DType::kBF16, {d.t, columns});
  if (operation.is_gradient) {
    kind.dprobs_columns = static_cast<int32_t>(operation.dprobs_columns);
    kind.probs = dtype_of(operation.topk_probs_dtype);
    parts.read("dprobs_blocks", DType::kF32, {d.p, {"dprobs_columns", kind.dprobs_columns}});
    if (operation.bias_dprobs) parts.read("bias_dprobs", DType::kF32, {d.p});
    parts.write("dprobs", kind.probs, {d.t, d.k});
  }
  return std::move(parts).make(kind, bounds_of(operation.tokens), context);
}

}  // namespace moejit::compiler
