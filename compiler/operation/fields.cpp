// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/fields.h"

#include "compiler/parser/layer_schema.h"

namespace moejit::compiler {
namespace {

constexpr IntRange kRowsRange{.lowest = 1, .highest = kMaxPermutedRows};
constexpr IntRange kTopKRange{.lowest = 1, .highest = kMaxExperts};
constexpr IntRange kSectionsRange{.lowest = 1, .highest = 16};
constexpr IntRange kColumnsRange{.lowest = 16, .highest = 131072, .multiple_of = 16};
constexpr IntRange kMagnitudesRange{.lowest = 1, .highest = 1 << 24};
constexpr IntRange kBlocksRange{.lowest = 1, .highest = kColumnsRange.highest / 128};
constexpr std::array kTopkIds = {TopkIdsDtype::kI32, TopkIdsDtype::kI64};
constexpr std::array kTopkProbs = {TopkProbsDtype::kF32, TopkProbsDtype::kBf16};
constexpr std::array kForeign = {ForeignExperts::kReport, ForeignExperts::kIgnore};
constexpr std::array kLayouts = {GateUpLayout::kConcat, GateUpLayout::kInterleaved};
constexpr std::array kRules = {TransposeRule::kIdeal, TransposeRule::kForkCompat};
constexpr std::array kScales = {GemmScales::kRowBlock, GemmScales::kTensor, GemmScales::kRowColumn,
                                GemmScales::kNone};
constexpr std::array kAccumulations = {GemmAccumulation::kFp32, GemmAccumulation::kFast};
constexpr std::array kMajors = {Major::kK, Major::kMn};
constexpr std::array kBiases = {GemmBias::kNone, GemmBias::kColumns, GemmBias::kColumnsTimesProb};
constexpr std::array kGradientScales = {GradientScales::kTile, GradientScales::kRow,
                                        GradientScales::kTensor, GradientScales::kRowColumn,
                                        GradientScales::kNone};
constexpr std::array kGradientOutputs = {GradientOutput::kF32, GradientOutput::kF32Add,
                                         GradientOutput::kBf16};

// Returns a range of numbers in which each section is a matrix of its own, whose rows fill 16-byte
// vectors.
IntRange multiple_of_sections(int64_t sections, int64_t unit) {
  const int64_t step = unit * sections;
  return {.lowest = step, .highest = 262144 / step * step, .multiple_of = step};
}

constexpr std::array kRowRecipes = {Recipe::kFp8Flow, Recipe::kFp8Blockwise, Recipe::kFp8Rowwise,
                                    Recipe::kMxfp8};
// Rows of nvfp4 alone need a scale that is known before.
constexpr std::array kQuantizeRecipes = {Recipe::kFp8Flow, Recipe::kFp8Blockwise,
                                         Recipe::kFp8Rowwise, Recipe::kMxfp8, Recipe::kNvfp4};
constexpr std::array kWeightRecipes = {Recipe::kFp8Flow, Recipe::kMxfp8, Recipe::kNvfp4};
constexpr std::array kColumnRecipes = {Recipe::kFp8Blockwise, Recipe::kFp8Rowwise, Recipe::kMxfp8,
                                       Recipe::kNvfp4};
constexpr std::array kSwizzleRecipes = {Recipe::kMxfp8, Recipe::kNvfp4};

// Visits the recipe whose rows an operation makes, and the number of blocks that share a scale.
void visit_rows(Recipe& recipe, int64_t& blocks, FieldVisitor& visitor) {
  visitor.choice("recipe", recipe, kRowRecipes);
  visitor.integer("scale_sharing_k", blocks, kScaleSharingRange);
}

// Visits the number of blocks of the contraction that share a scale, for operands with scales of
// blocks.
void visit_scale_sharing(int64_t& blocks, FieldVisitor& visitor) {
  visitor.integer("scale_sharing_k", blocks, kScaleSharingRange);
}

void visit(RoutedTokens& tokens, FieldVisitor& visitor) {
  visitor.required("max_tokens", tokens.max_tokens, kTokensRange);
  visitor.required("top_k", tokens.top_k, kTopKRange);
  visitor.required("local_experts", tokens.local_experts, kExpertsRange);
  visitor.integer("splits_alignment", tokens.splits_alignment, kSplitsAlignmentRange);
  visitor.integer("max_permuted_rows", tokens.max_permuted_rows,
                  {.lowest = tokens.splits_alignment,
                   .highest = kMaxPermutedRows,
                   .multiple_of = tokens.splits_alignment});
}

void visit(QuantizeOperation& operation, FieldVisitor& visitor) {
  visitor.required("max_tokens", operation.max_tokens, kTokensRange);
  visitor.required("columns", operation.columns, kWidthRange);
  visitor.choice("recipe", operation.recipe, kQuantizeRecipes);
  visit_scale_sharing(operation.scale_sharing_k, visitor);
}

void visit(QuantizeWeightsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.integer("sections", operation.sections, {.lowest = 1, .highest = 2});
  visitor.required("rows", operation.rows, multiple_of_sections(operation.sections, 16));
  visitor.required("columns", operation.columns, kWidthRange);
  visit_scale_sharing(operation.scale_sharing_k, visitor);
  visitor.choice("gate_up_layout", operation.gate_up_layout, kLayouts);
  visitor.choice("recipe", operation.recipe, kWeightRecipes);
  visitor.boolean("colwise", operation.colwise);
}

void visit(RouteOperation& operation, FieldVisitor& visitor) {
  visit(operation.tokens, visitor);
  visitor.choice("topk_ids_dtype", operation.topk_ids_dtype, kTopkIds);
  visitor.choice("foreign_experts", operation.foreign_experts, kForeign);
  visitor.boolean("colwise_offs", operation.colwise_offs);
}

void visit(PermutePadOperation& operation, FieldVisitor& visitor) {
  visit(operation.tokens, visitor);
  visitor.required("columns", operation.columns, kWidthRange);
  if (operation.quantizes) {
    visit_rows(operation.recipe, operation.scale_sharing_k, visitor);
    visitor.boolean("keep_rows", operation.keeps_rows);
  } else {
    visitor.choice("format", operation.format,
                   std::array{RowFormat::kFp8, RowFormat::kBf16, RowFormat::kFp4},
                   {"fp8", "bf16", "fp4"});
    if (operation.format == RowFormat::kFp8)
      visitor.choice("recipe", operation.recipe, kRowRecipes);
    if (operation.format == RowFormat::kFp4) {
      operation.recipe = Recipe::kNvfp4;
      visitor.choice("recipe", operation.recipe, std::array{Recipe::kNvfp4});
    }
    visitor.integer("experts", operation.experts, kExpertsRange);
  }
  if (operation.is_gradient) return;
  visitor.choice("topk_probs_dtype", operation.topk_probs_dtype, kTopkProbs);
  visitor.boolean("row_tokens", operation.row_tokens);
}

void visit(UnpermuteOperation& operation, FieldVisitor& visitor) {
  visit(operation.tokens, visitor);
  visitor.required("columns", operation.columns, kWidthRange);
  if (!operation.is_gradient) return;
  visitor.required("dprobs_columns", operation.dprobs_columns, kBlocksRange);
  visitor.boolean("bias_dprobs", operation.bias_dprobs);
  visitor.choice("topk_probs_dtype", operation.topk_probs_dtype, kTopkProbs);
}

void visit(ActivationOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("intermediate", operation.intermediate, kWidthRange);
  visitor.activation(operation.activation);
  if (operation.format == RowFormat::kBf16)
    visitor.choice("gate_up_layout", operation.gate_up_layout, kLayouts);
  else if (!operation.is_gradient)
    visit_rows(operation.recipe, operation.scale_sharing_k, visitor);
  else
    visitor.choice("recipe", operation.recipe, kRowRecipes);
  if (operation.is_gradient) visitor.boolean("dprobs", operation.dprobs);
}

void visit(TransposeOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("columns", operation.columns, kColumnsRange);
  visitor.choice("dtype", operation.dtype, std::array{DType::kF8E4M3, DType::kF8E5M2},
                 {"f8_e4m3", "f8_e5m2"});
  visitor.choice("rule", operation.rule, kRules);
  visitor.boolean("count_flushed", operation.counts_flushed);
}

void visit(ScaleColumnsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("columns", operation.columns, kColumnsRange);
}

void visit(QuantizeColumnsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("columns", operation.columns, kColumnsRange);
  visitor.choice("recipe", operation.recipe, kColumnRecipes);
  visitor.boolean("rowwise", operation.rowwise);
}

void visit(SwizzleScalesOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("columns", operation.columns, kColumnsRange);
  visitor.boolean("of_columns", operation.of_columns);
  visitor.choice("recipe", operation.recipe, kSwizzleRecipes);
}

void visit(AmaxRowsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.required("columns", operation.columns, kColumnsRange);
}

void visit(AmaxWeightsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("rows", operation.rows, multiple_of_sections(1, 16));
  visitor.required("columns", operation.columns, kColumnsRange);
}

void visit(ScaleExpertsOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.integer("max_permuted_rows", operation.max_permuted_rows,
                  {.lowest = 0, .highest = kMaxPermutedRows});
  visitor.required("magnitudes", operation.magnitudes, kMagnitudesRange);
  visitor.choice("dtype", operation.dtype,
                 std::array{DType::kF4E2M1x2, DType::kF8E4M3, DType::kF8E5M2},
                 {"f4_e2m1", "f8_e4m3", "f8_e5m2"});
}

void visit(MultiCastTransposeOperation& operation, FieldVisitor& visitor) {
  visitor.choice("input_dtype", operation.input_dtype, std::array{DType::kBF16, DType::kF32},
                 {"bf16", "f32"});
  visitor.choice("output_dtype", operation.output_dtype, std::array{DType::kF8E4M3, DType::kF8E5M2},
                 {"f8_e4m3", "f8_e5m2"});
  visitor.sizes("sizes", operation.sizes);
}

// Visits the format of A, if scales leave a choice. Which scales it goes with is the planner's to
// say.
void visit_a_dtype(DType& dtype, FieldVisitor& visitor) {
  visitor.choice("a_dtype", dtype, std::array{DType::kF8E4M3, DType::kF8E5M2, DType::kBF16},
                 {"f8_e4m3", "f8_e5m2", "bf16"});
}

void visit(GroupedGemmOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_permuted_rows", operation.max_permuted_rows, kRowsRange);
  visitor.integer("sections", operation.sections, kSectionsRange);
  visitor.required("n", operation.n, multiple_of_sections(operation.sections, 16));
  visitor.required("k", operation.k, kColumnsRange);
  visitor.choice("scales", operation.scales, kScales);
  visitor.choice("accumulation", operation.accumulation, kAccumulations);
  visit_scale_sharing(operation.scale_sharing_k, visitor);
  visitor.choice("b_major", operation.b_major, kMajors);
  visitor.choice("bias", operation.bias, kBiases);
  visit_a_dtype(operation.a_dtype, visitor);
}

void visit(ContractionGroupedGemmOperation& operation, FieldVisitor& visitor) {
  visitor.required("local_experts", operation.local_experts, kExpertsRange);
  visitor.required("max_columns", operation.max_columns,
                   {.lowest = 128, .highest = kMaxPermutedRows / 128 * 128, .multiple_of = 128});
  visitor.required("rows", operation.rows, kColumnsRange);
  visitor.required("n", operation.n, kColumnsRange);
  visitor.choice("scales", operation.scales, kGradientScales);
  visitor.choice("output", operation.output, kGradientOutputs);
  visitor.choice("accumulation", operation.accumulation, kAccumulations);
  visit_a_dtype(operation.a_dtype, visitor);
}

std::string_view name_of(const QuantizeOperation&) { return "quantize"; }
std::string_view name_of(const QuantizeWeightsOperation&) { return "quantize_weights"; }
std::string_view name_of(const RouteOperation&) { return "route"; }
std::string_view name_of(const PermutePadOperation& operation) {
  if (operation.quantizes)
    return operation.is_gradient ? "quantize_permute_pad_grad" : "quantize_permute_pad";
  return operation.is_gradient ? "permute_pad_grad" : "permute_pad";
}
std::string_view name_of(const UnpermuteOperation& operation) {
  return operation.is_gradient ? "unpermute_grad" : "unpermute";
}
std::string_view name_of(const ActivationOperation& operation) {
  if (operation.format == RowFormat::kBf16)
    return operation.is_gradient ? "activation_backward" : "activation";
  return operation.is_gradient ? "activation_backward_quantize" : "activation_quantize";
}
std::string_view name_of(const TransposeOperation&) { return "transpose"; }
std::string_view name_of(const ScaleColumnsOperation&) { return "scale_columns"; }
std::string_view name_of(const QuantizeColumnsOperation&) { return "quantize_columns"; }
std::string_view name_of(const SwizzleScalesOperation&) { return "swizzle_scales"; }
std::string_view name_of(const AmaxRowsOperation&) { return "amax_rows"; }
std::string_view name_of(const AmaxWeightsOperation&) { return "amax_weights"; }
std::string_view name_of(const ScaleExpertsOperation&) { return "scale_experts"; }
std::string_view name_of(const MultiCastTransposeOperation&) { return "multi_cast_transpose"; }
std::string_view name_of(const GroupedGemmOperation&) { return "grouped_gemm"; }
std::string_view name_of(const ContractionGroupedGemmOperation&) {
  return "contraction_grouped_gemm";
}

}  // namespace

std::vector<OperationDescription> default_operations() {
  const RowFormat bf16 = RowFormat::kBf16, fp8 = RowFormat::kFp8;
  return {QuantizeOperation{},
          QuantizeWeightsOperation{},
          RouteOperation{},
          PermutePadOperation{},
          PermutePadOperation{.quantizes = true},
          UnpermuteOperation{},
          PermutePadOperation{.is_gradient = true},
          PermutePadOperation{.quantizes = true, .is_gradient = true},
          UnpermuteOperation{.is_gradient = true},
          ActivationOperation{.format = bf16},
          ActivationOperation{.format = fp8},
          ActivationOperation{.format = bf16, .is_gradient = true},
          ActivationOperation{.format = fp8, .is_gradient = true},
          TransposeOperation{},
          ScaleColumnsOperation{},
          QuantizeColumnsOperation{},
          SwizzleScalesOperation{},
          MultiCastTransposeOperation{},
          GroupedGemmOperation{},
          ContractionGroupedGemmOperation{},
          AmaxRowsOperation{},
          AmaxWeightsOperation{},
          ScaleExpertsOperation{}};
}

std::vector<std::string_view> operation_names() {
  std::vector<std::string_view> names;
  for (const OperationDescription& operation : default_operations())
    names.push_back(operation_name(operation));
  return names;
}

std::string_view operation_name(const OperationDescription& operation) {
  return std::visit([](const auto& kind) { return name_of(kind); }, operation);
}

void visit_fields(OperationDescription& operation, FieldVisitor& visitor) {
  std::visit([&](auto& kind) { visit(kind, visitor); }, operation);
}

}  // namespace moejit::compiler
