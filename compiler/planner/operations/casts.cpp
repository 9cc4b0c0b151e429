// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/casts.h"

#include "compiler/planner/candidates.h"
#include "compiler/planner/operation.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// With fewer rows an expert, a step in fp8_flow that casts its weights was slower than one in bf16
// on an H200 (docs/performance/fine-grained.md).
constexpr int64_t kFewRowsOfExpert = 150;

bool may_lose_to_bf16(const CallBounds& bounds) {
  return bounds.max_tokens > 0 && bounds.groups > 0 && group_rows(bounds).mean < kFewRowsOfExpert;
}

}  // namespace

QuantizeStage quantize_stage(const Format& format, int32_t blocks_per_scale) {
  if (!is_quantized(format)) return QuantizeStage::kNone;
  if (has_expert_scale(format)) return QuantizeStage::kExpert;
  if (format.scale == ScaleOf::k1x32)
    return format.is_recovered ? QuantizeStage::k1x32Values : QuantizeStage::k1x32;
  if (format.scale == ScaleOf::kRow) return QuantizeStage::kRow;
  if (format.rounds_to_bf16) return QuantizeStage::k1x128Rounded;
  return blocks_per_scale == 2 ? QuantizeStage::k1x128Pairs : QuantizeStage::k1x128;
}

QuantizeStage quantize_stage_of_bf16(Format format, int32_t blocks_per_scale) {
  format.rounds_to_bf16 = false;
  return quantize_stage(format, blocks_per_scale);
}

template <>
KernelPlan make_kernel(const Operation& operation, const QuantizeWeights& weights,
                       const KernelContext& context) {
  const bool writes_rows = find_write(operation, "output") != nullptr;
  const bool writes_colwise = find_write(operation, "output_colwise") != nullptr;
  KernelPlan kernel{
      .spec = TileChainSpec{.sections = weights.sections,
                            .section_rows = weights.section_rows,
                            .columns = weights.columns,
                            .tiles_per_scale = weights.tiles_per_scale,
                            .epsilon = weights.epsilon,
                            .writes_rows = writes_rows,
                            .writes_colwise = writes_colwise,
                            .is_interleaved = weights.is_interleaved,
                            .is_separate = weights.is_separate,
                            .has_expert_scale = weights.has_expert_scale,
                            .amax = weights.amax,
                            // each thread holds as many elements for any tiles_per_scale
                            .threads = 256 * weights.tiles_per_scale},
      .reasons = {weights.has_expert_scale ? "all experts in one launch, with one scale each"
                                           : "all experts in one launch, one scale per 128x128 "
                                             "tile"},
  };
  add_arguments(kernel, operation,
                {"input", "input_up", "output", "skip", "output_colwise", "expert_scales", "amax"});
  if (writes_colwise && writes_rows) {
    kernel.reasons.emplace_back("both orientations from one read: dgrad multiplies with columns");
    if (may_lose_to_bf16(context.bounds))
      kernel.reasons.push_back(
          fmt::format("at about {} rows an expert, casting weights in each step can cost more than "
                      "FP8 spares: let micro-batches share the cast, or try the recipe bf16",
                      group_rows(context.bounds).mean));
  }
  if (!writes_rows)
    kernel.reasons.emplace_back(
        "backward_quantizes_weights: columns are made where dgrad reads them, and take no memory "
        "between the passes");
  if (weights.is_interleaved)
    kernel.reasons.emplace_back(
        "rows of gate and up, which alternate, are sorted on the way: GEMMs have all of gate "
        "first");
  if (weights.is_separate)
    kernel.reasons.emplace_back(
        "gate and up are read where they lie and joined on the way: GEMMs have all of gate first");
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const QuantizeMatrixRows& rows,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = with_whole_rows({.load = LoadStage::kMatrixRows,
                               .quantize = quantize_stage(rows.format, 1),
                               .columns = rows.matrices.columns,
                               .local_experts = rows.matrices.local_experts,
                               .epsilon = rows.format.epsilon,
                               .sections = rows.matrices.sections,
                               .section_rows = rows.matrices.section_rows,
                               .is_interleaved = rows.matrices.is_interleaved}),
      .reasons = {"all experts in one launch, one scale per row, which is read once"},
  };
  add_arguments(kernel, operation, {"input", "skip", "output"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const QuantizeRows& rows, const KernelContext&) {
  KernelPlan kernel{
      .spec =
          with_whole_rows({.quantize = quantize_stage_of_bf16(rows.format, rows.blocks_per_scale),
                           .columns = rows.columns,
                           .epsilon = rows.format.epsilon}),
      .reasons = {std::string(rows.reason)},
  };
  add_arguments(kernel, operation, {"input", "output"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const QuantizeColumns& cast,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = ColumnCastSpec{.source = cast.source,
                             .local_experts = cast.local_experts,
                             .columns = cast.columns,
                             .epsilon = cast.format.epsilon},
      .reasons = {"values are quantized anew, 128 tokens of a column with one scale: no scale of "
                  "the rows coarsens them"},
  };
  add_arguments(kernel, operation,
                {"input", "counts", "offs", "output_offs", "output", "row_tokens"});
  if (cast.source != RowSource::kInOrder) kernel.reasons.emplace_back(kFetchedReason);
  return kernel;
}

namespace {

KernelSpec spec_of(const CastBlocks& cast, bool casts_rows, bool casts_columns) {
  const CastResult result = cast.format.is_recovered ? CastResult::kValues : CastResult::kCodes;
  if (has_two_levels(cast.format))
    return TwoLevelCastSpec{.source = cast.source,
                            .result = result,
                            .has_tiles = has_square_blocks(cast.format),
                            .casts_rows = casts_rows,
                            .casts_columns = casts_columns,
                            .local_experts = cast.local_experts,
                            .matrix_rows = cast.matrix_rows,
                            .columns = cast.columns};
  return BlockCastSpec{.source = cast.source,
                       .result = result,
                       .casts_rows = casts_rows,
                       .casts_columns = casts_columns,
                       .starts_anywhere = cast.starts_anywhere,
                       .local_experts = cast.local_experts,
                       .matrix_rows = cast.matrix_rows,
                       .columns = cast.columns};
}

std::string scales_reason(const Format& format, bool casts_rows, bool casts_columns) {
  const std::string_view scale = has_two_levels(format) ? "E4M3" : "E8M0";
  const int32_t elements = has_two_levels(format) ? 16 : 32;
  if (has_square_blocks(format))
    return fmt::format("one {} scale for {}x{}: rows and columns have the same values", scale,
                       elements, elements);
  if (casts_rows && casts_columns)
    return fmt::format(
        "{} elements along either contraction share a scale: both casts are made of one read",
        elements);
  return fmt::format("one {} scale for {} {}", scale, elements,
                     casts_rows ? "columns of a row" : "rows of a column");
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const CastBlocks& cast, const KernelContext&) {
  const bool casts_rows = find_write(operation, "output") != nullptr;
  const bool casts_columns = find_write(operation, "output_colwise") != nullptr;
  KernelPlan kernel{.spec = spec_of(cast, casts_rows, casts_columns),
                    .reasons = {scales_reason(cast.format, casts_rows, casts_columns)}};
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output", "output_colwise", "skip",
                 "expert_scales"});
  if (cast.format.is_recovered)
    kernel.reasons.emplace_back(
        "codes times scales are stored in bf16, exactly: no tensor core here takes such scales");
  if (cast.source != RowSource::kInOrder) kernel.reasons.emplace_back(kFetchedReason);
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const CastTranspose& cast,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = CastTransposeSpec{.format = cast.format.dtype,
                                .local_experts = cast.local_experts,
                                .columns = cast.columns,
                                .zeroes_rows = cast.zeroes_rows,
                                .stores_rows = find_write(operation, "output") != nullptr,
                                .amax = cast.amax},
      .reasons = {"an expert's scale is known beforehand, so that rows and columns are cast from "
                  "one read, to the same bytes",
                  kFetchedReason},
  };
  add_arguments(kernel, operation,
                {"input", "row_tokens", "counts", "offs", "output_offs", "expert_scales", "output",
                 "output_colwise", "amax"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const Transpose& transpose,
                       const KernelContext&) {
  KernelPlan kernel{
      .spec = TransposeSpec{.format = transpose.format,
                            .rule = transpose.keeps_bytes ? TransposeRule::kKeepBytes
                                                          : TransposeRule::kIdeal,
                            .source = transpose.source,
                            .local_experts = transpose.local_experts,
                            .columns = transpose.columns},
      .reasons = {"the codes of a 128x128 tile are shifted to its largest scale: nothing is "
                  "dequantized, and wgrad needs one scale for each tile"},
  };
  if (transpose.keeps_bytes)
    kernel.reasons = {"bytes are copied as they are: an expert's rows have one scale"};
  add_arguments(kernel, operation,
                {"input", "counts", "offs", "output_offs", "output", "row_tokens"});
  if (transpose.source != RowSource::kInOrder) kernel.reasons.emplace_back(kFetchedReason);
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const CheckWeights& check,
                       const KernelContext&) {
  const int32_t window = 64 * check.spec.window_probes;
  KernelPlan kernel{
      .spec = check.spec,
      .reasons = {check.spec.window_probes == 1
                      ? "every byte of the weights is compared: they are small"
                      : fmt::format("64 of every {} bytes are compared, so that the check takes a "
                                    "few microseconds; two such windows in a row hold a probe, "
                                    "wherever they begin",
                                    window),
                  "the casts behind it end at once if nothing has changed"}};
  add_arguments(kernel, operation, {"w1", "w2", "skip", "status", "digest"});
  return kernel;
}

}  // namespace moejit::compiler
