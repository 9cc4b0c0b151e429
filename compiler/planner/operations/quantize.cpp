// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/quantize.h"

#include "compiler/planner/operations/arguments.h"

namespace moejit::compiler {

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

KernelPlan make_kernel(const Operation& operation, const QuantizeWeights& weights,
                       const KernelContext&) {
  const bool writes_colwise = find_write(operation, "output_colwise") != nullptr;
  KernelPlan kernel{
      .spec = TileChainSpec{.sections = weights.sections,
                            .section_rows = weights.section_rows,
                            .columns = weights.columns,
                            .tiles_per_scale = weights.tiles_per_scale,
                            .epsilon = weights.epsilon,
                            .writes_colwise = writes_colwise,
                            .is_interleaved = weights.is_interleaved,
                            .has_expert_scale = weights.has_expert_scale,
                            .amax = weights.amax,
                            // each thread holds as many elements for any tiles_per_scale
                            .threads = 256 * weights.tiles_per_scale},
      .reasons = {weights.has_expert_scale ? "all experts in one launch, with one scale each"
                                           : "all experts in one launch, one scale per 128x128 "
                                             "tile"},
  };
  add_arguments(kernel, operation,
                {"input", "output", "skip", "output_colwise", "expert_scales", "amax"});
  if (writes_colwise)
    kernel.reasons.emplace_back("both orientations from one read: dgrad multiplies with columns");
  if (weights.is_interleaved)
    kernel.reasons.emplace_back(
        "rows of gate and up, which alternate, are sorted on the way: GEMMs have all of gate "
        "first");
  return kernel;
}

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

}  // namespace moejit::compiler
