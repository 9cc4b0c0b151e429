// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Sizes that decide how a call's tokens are routed to this rank's experts.
struct RoutedTokens {
  Dim t, k, e, p;
  int32_t splits_alignment = 0;
  bool takes_any_rows = false;  // whether the caller sees to it that P suffices

  CallBounds bounds(int64_t experts = 0) const {
    return {.max_tokens = t.value,
            .top_k = int32_of(k),
            .groups = int32_of(e),
            .splits_alignment = splits_alignment,
            .max_permuted_rows = p.value,
            .experts = experts,
            .takes_any_rows = takes_any_rows};
  }
};

// Returns the rows that any routing can need.
int64_t most_rows(const RoutedTokens& tokens) {
  Layer routed;  // not braced: if memory ends there, GCC 12 destroys earlier members twice
  routed.local_experts = int32_of(tokens.e);
  routed.top_k = int32_of(tokens.k);
  routed.splits_alignment = tokens.splits_alignment;
  routed.max_tokens = tokens.t.value;
  return worst_case_permuted_rows(routed);
}

RoutedTokens routed_tokens(OperationDraft& draft) {
  RoutedTokens tokens;
  tokens.t = draft.dim("T", "max_tokens", kTokensRange);
  tokens.k = draft.dim("K", "top_k", {.lowest = 1, .highest = kMaxExperts});
  tokens.e = draft.dim("E", "local_experts", kExpertsRange);
  const int32_t alignment = draft.int32("splits_alignment", kSplitsAlignmentRange, 128);
  tokens.splits_alignment = alignment;
  const int64_t most = most_rows(tokens);
  const IntRange range{.lowest = alignment, .highest = kMaxPermutedRows, .multiple_of = alignment};
  tokens.p = {"P", draft.integer("max_permuted_rows", range, most)};
  if (tokens.p.value > kMaxPermutedRows)
    draft.refuse(
        "max_tokens",
        fmt::format("tokens with {} experts each, which may need {} rows", tokens.k.value, most),
        fmt::format("at most {}", kMaxPermutedRows), "lower max_tokens, or give max_permuted_rows");
  return tokens;
}

// Reads the sizes of an operation that takes a row_map, with whether its calls have any P.
RoutedTokens mapped_tokens(OperationDraft& draft) {
  RoutedTokens tokens = routed_tokens(draft);
  tokens.takes_any_rows = draft.boolean("any_permuted_rows");
  return tokens;
}

DType probs_dtype(OperationDraft& draft) {
  return dtype_of(
      draft.choice("topk_probs_dtype", std::array{TopkProbsDtype::kF32, TopkProbsDtype::kBf16}));
}

}  // namespace

void describe_route(OperationDraft& draft) {
  const RoutedTokens tokens = routed_tokens(draft);
  const DType ids =
      dtype_of(draft.choice("topk_ids_dtype", std::array{IndexDtype::kI32, IndexDtype::kI64}));
  const ForeignExperts foreign =
      draft.choice("foreign_experts", std::array{ForeignExperts::kReport, ForeignExperts::kIgnore});
  const bool has_colwise_offs = draft.boolean("colwise_offs");
  const bool takes_map = draft.choice("input", std::array<std::string_view, 2>{
                                                   "topk_ids", "routing_map"}) == "routing_map";
  if (takes_map && ids != DType::kI32)
    draft.refuse("topk_ids_dtype", "with a routing_map", "i32", "a map is made of bytes");
  if (takes_map && foreign == ForeignExperts::kIgnore)
    draft.refuse("foreign_experts", "with a routing_map", "report",
                 "a map has columns for the experts of this rank alone");
  if (takes_map)
    draft.read("routing_map", DType::kU8, {tokens.t, tokens.e});
  else
    draft.read("topk_ids", ids, {tokens.t, tokens.k});
  draft.write("counts", DType::kI32, {tokens.e});
  draft.write("offs", DType::kI32, {starts_of(tokens.e)});
  if (has_colwise_offs) draft.write("colwise_offs", DType::kI32, {starts_of(tokens.e)});
  draft.write("row_map", DType::kI32, {tokens.t, tokens.k});
  draft.write("status", DType::kU32, {fixed(1)});
  draft.make(Route{.local_experts = int32_of(tokens.e),
                   .top_k = int32_of(tokens.k),
                   .splits_alignment = tokens.splits_alignment,
                   .topk_ids = ids,
                   .ignores_foreign = foreign == ForeignExperts::kIgnore},
             tokens.bounds());
}

namespace {

// How rows are moved.
struct PermutedRows {
  Format format;  // of the stored rows: codes, or bf16
  int32_t blocks_per_scale = 1;
  bool keeps_rows = false;  // if rows are quantized: whether they are stored in token order too
  int64_t experts = 0;      // of the whole model; affects speed only
};

PermutedRows quantized_rows(OperationDraft& draft, bool is_gradient, int64_t local_experts) {
  const Recipe recipe = draft.choice("recipe", row_recipes());
  return {.format = codes_of(is_gradient ? recipe.gradients : recipe.tokens),
          .blocks_per_scale = blocks_per_scale(draft, recipe),
          .keeps_rows = draft.boolean("keep_rows"),
          .experts = local_experts};
}

PermutedRows rows_as_they_are(OperationDraft& draft, int64_t local_experts) {
  PermutedRows rows;
  const std::string_view format =
      draft.choice("format", std::array<std::string_view, 3>{"fp8", "bf16", "fp4"});
  if (format == "fp8") rows.format = codes_of(draft.choice("recipe", row_recipes()).tokens);
  if (format == "fp4")
    rows.format = codes_of(draft.choice("recipe", std::array{Recipe::kNvfp4}).tokens);
  rows.experts = draft.integer("experts", kExpertsRange, local_experts);
  if (rows.experts < local_experts)
    draft.refuse("experts", fmt::format("with {} of them local", local_experts), "as many or more",
                 "");
  return rows;
}

}  // namespace

void describe_permute(OperationDraft& draft, bool quantizes, bool is_gradient) {
  const RoutedTokens tokens = mapped_tokens(draft);
  const Dim columns = draft.dim("columns", "columns", kWidthRange);
  const PermutedRows rows = quantizes ? quantized_rows(draft, is_gradient, tokens.e.value)
                                      : rows_as_they_are(draft, tokens.e.value);
  const DType probs = is_gradient ? DType::kF32 : probs_dtype(draft);
  const bool tells_tokens = !is_gradient && draft.boolean("row_tokens");
  draft.read(scaled_rows("input", {tokens.t}, columns, quantizes ? Format{} : rows.format));
  if (!is_gradient) draft.read("probs", probs, {tokens.t, tokens.k});
  draft.read("row_map", DType::kI32, {tokens.t, tokens.k});
  read_groups(draft, tokens.e);
  draft.write(scaled_rows("output", {tokens.p}, columns, rows.format));
  if (!is_gradient) draft.write("output_probs", DType::kF32, {tokens.p});
  if (tells_tokens) draft.write("row_tokens", DType::kI32, {tokens.p});
  if (rows.keeps_rows) {
    ScaledTensor kept = scaled_rows("kept_output", {tokens.t}, columns, rows.format);
    kept.scales_name = "kept_scale_inv";
    draft.write(std::move(kept));
  }
  PermutePad permute{.columns = int32_of(columns),
                     .experts = static_cast<int32_t>(rows.experts),
                     .local_experts = int32_of(tokens.e),
                     .top_k = int32_of(tokens.k),
                     .probs = probs,
                     .has_two_levels = has_two_levels(rows.format)};
  if (quantizes)
    permute.quantize = QuantizeRows{.columns = permute.columns,
                                    .format = rows.format,
                                    .blocks_per_scale = rows.blocks_per_scale};
  draft.make(std::move(permute), tokens.bounds(rows.experts));
}

void describe_unpermute(OperationDraft& draft, bool is_gradient) {
  const RoutedTokens tokens = mapped_tokens(draft);
  const Dim columns = draft.dim("columns", "columns", kWidthRange);
  Unpermute unpermute{.columns = int32_of(columns), .top_k = int32_of(tokens.k)};
  draft.read("input", DType::kBF16, {tokens.p, columns});
  draft.read("row_map", DType::kI32, {tokens.t, tokens.k});
  draft.write("output", DType::kBF16, {tokens.t, columns});
  if (is_gradient) {
    const Dim parts = draft.dim("dprobs_columns", "dprobs_columns",
                                {.lowest = 1, .highest = kColumnsRange.highest / 128});
    const bool has_bias = draft.boolean("bias_dprobs");
    unpermute.dprobs_columns = int32_of(parts);
    unpermute.probs = probs_dtype(draft);
    draft.read("dprobs_blocks", DType::kF32, {tokens.p, parts});
    if (has_bias) draft.read("bias_dprobs", DType::kF32, {tokens.p});
    draft.write("dprobs", unpermute.probs, {tokens.t, tokens.k});
  }
  draft.make(unpermute, tokens.bounds());
}

}  // namespace moejit::compiler
