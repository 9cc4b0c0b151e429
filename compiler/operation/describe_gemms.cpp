// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"
#include "compiler/planner/grouped_gemm.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the format of A. Which scales it goes with is the planner's to say.
DType a_dtype(OperationDraft& draft) {
  return draft.choice("a_dtype", std::array{DType::kF8E4M3, DType::kF8E5M2, DType::kBF16});
}

GemmAccumulation accumulation(OperationDraft& draft) {
  return draft.choice("accumulation", std::array{GemmAccumulation::kFp32, GemmAccumulation::kFast});
}

// Adds the scales of A and B.
void read_scales(OperationDraft& draft, std::vector<Dim> a, std::vector<Dim> b,
                 Layout of_a = Layout::kRowMajor, Layout of_b = Layout::kRowMajor) {
  draft.read_scales("a", std::move(a), of_a);
  draft.read_scales("b", std::move(b), of_b);
}

// Refuses fields that do not go with the scales of a grouped GEMM.
void check(OperationDraft& draft, const GroupedGemmSpec& problem) {
  const std::string beside = fmt::format("with the scales {}", to_string(problem.scales));
  const bool has_blocks = problem.scales == GemmScales::kRowBlock;
  if (problem.blocks_per_promotion > 1 && !has_blocks)
    draft.refuse("scale_sharing_k", beside, "1",
                 "blocks share their scales where scales are row_block");
  if (problem.bias != GemmBias::kNone && !has_blocks && problem.scales != GemmScales::kNone)
    draft.refuse("bias", beside, "\"none\"", "biases are added where scales are row_block or none");
}

}  // namespace

void describe_grouped_gemm(OperationDraft& draft) {
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  Dim p = draft.dim("P", "max_permuted_rows", kRowsRange);
  const int32_t sections = draft.int32("sections", {.lowest = 1, .highest = 16}, 1);
  const Dim n = draft.dim("n", "n", rows_of_sections(sections));
  const Dim k = draft.dim("k", "k", kColumnsRange);
  GroupedGemmSpec problem{.local_experts = int32_of(e),
                          .sections = sections,
                          .section_n = static_cast<int32_t>(n.value / sections),
                          .k = int32_of(k)};
  problem.scales = draft.choice("scales", std::array{GemmScales::kRowBlock, GemmScales::kTensor,
                                                     GemmScales::kRowColumn, GemmScales::kNone});
  problem.accumulation = accumulation(draft);
  problem.blocks_per_promotion = draft.int32("scale_sharing_k", kScaleSharingRange, 1);
  problem.b_major = draft.choice("b_major", std::array{Major::kK, Major::kMn});
  problem.bias = draft.choice(
      "bias", std::array{GemmBias::kNone, GemmBias::kColumns, GemmBias::kColumnsTimesProb});
  const DType a = a_dtype(draft);
  problem.zeros_rest = draft.boolean("zeros_rest");
  if (problem.zeros_rest) p.symbol = "T";  // the kernel asks the call where the rows end
  check(draft, problem);
  const bool is_bf16 = problem.scales == GemmScales::kNone || a == DType::kBF16;
  problem.operands = is_bf16 ? DType::kBF16 : DType::kF8E4M3;
  problem.is_a_e5m2 = a == DType::kF8E5M2;

  draft.read("a", problem.is_a_e5m2 ? a : problem.operands, {p, k});
  draft.read("b", problem.operands,
             problem.b_major == Major::kMn ? std::vector{e, k, n} : std::vector{e, n, k});
  const Dim row_tiles{"row tiles", sections * ((problem.section_n + 127) / 128)};
  switch (problem.scales) {
    case GemmScales::kRowBlock:
      read_scales(draft, {p, blocks_of(k)}, {e, row_tiles, blocks_of(k)}, Layout::kScalesCompact,
                  Layout::kScalesTiles);
      break;
    case GemmScales::kTensor: read_scales(draft, {e}, {e}); break;
    case GemmScales::kRowColumn: read_scales(draft, {p}, {e, n}); break;
    case GemmScales::kSection:  // of packed weights, which only layers have
    case GemmScales::kNone: break;
  }
  if (problem.bias != GemmBias::kNone) draft.read("bias", DType::kBF16, {e, n});
  if (problem.bias == GemmBias::kColumnsTimesProb) draft.read("probs", DType::kF32, {p});
  read_groups(draft, e);
  draft.write("d", DType::kBF16, {p, n});
  draft.write_optional("elapsed", DType::kI64, 2);
  draft.make([=](const Target& target, const PlanOptions& options) {
    return plan_grouped_gemm(problem, p.value, target, options);
  });
}

void describe_contraction_grouped_gemm(OperationDraft& draft) {
  const Dim e = draft.dim("E", "local_experts", kExpertsRange);
  const Dim c =
      draft.dim("C", "max_columns",
                {.lowest = 128, .highest = kMaxPermutedRows / 128 * 128, .multiple_of = 128});
  const Dim rows = draft.dim("rows", "rows", kColumnsRange);
  const Dim n = draft.dim("n", "n", kColumnsRange);
  ContractionGroupedGemmSpec problem{
      .local_experts = int32_of(e), .rows = int32_of(rows), .n = int32_of(n)};
  problem.scales = draft.choice(
      "scales", std::array{GradientScales::kTile, GradientScales::kRow, GradientScales::kTensor,
                           GradientScales::kRowColumn, GradientScales::kNone});
  problem.output =
      draft.choice("output", std::array{GradientOutput::kF32, GradientOutput::kF32Add,
                                        GradientOutput::kBf16, GradientOutput::kBf16Add});
  problem.accumulation = accumulation(draft);
  const DType a = a_dtype(draft);
  const int32_t alignment = draft.int32("splits_alignment", kSplitsAlignmentRange, 128);
  problem.is_a_e5m2 = a == DType::kF8E5M2;
  problem.has_bf16_operands = a == DType::kBF16;
  const bool is_bf16 = operands_of(problem) == DType::kBF16;
  problem.ends_groups = ends_groups(problem, alignment);
  if (!is_bf16 && alignment % 128 != 0)
    draft.refuse("splits_alignment", fmt::format("with the scales {}", to_string(problem.scales)),
                 "a multiple of 128", "groups of bf16 columns may start anywhere");

  const Dim blocks{"C/128", c.value / 128};
  if (is_bf16) {
    draft.read("a", DType::kBF16, {c, rows});
    draft.read("b", DType::kBF16, {c, n});
  } else {
    draft.read("a", a, {blocks, rows, fixed(128)});
    draft.read("b", DType::kF8E4M3, {blocks, n, fixed(128)});
  }
  switch (problem.scales) {
    case GradientScales::kTile:
      read_scales(draft, {blocks_of(rows), blocks}, {blocks_of(n), blocks}, Layout::kScalesTiles,
                  Layout::kScalesTiles);
      break;
    case GradientScales::kRow:
      read_scales(draft, {blocks, rows}, {blocks, n}, Layout::kScalesColumns,
                  Layout::kScalesColumns);
      break;
    case GradientScales::kTensor: read_scales(draft, {e}, {e}); break;
    case GradientScales::kRowColumn: read_scales(draft, {e, rows}, {e, n}); break;
    case GradientScales::kNone: break;
  }
  read_groups(draft, e);
  draft.write("d", dtype_of(problem.output), {e, rows, n});
  draft.write_optional("elapsed", DType::kI64, 2);
  draft.make([=](const Target& target, const PlanOptions& options) {
    return plan_contraction_grouped_gemm(problem, c.value, target, options);
  });
}

}  // namespace moejit::compiler
