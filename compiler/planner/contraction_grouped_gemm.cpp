// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr int32_t kTileRows = 128;
constexpr int32_t kScaledTokens = 128;
constexpr int32_t kGradientPanelRows = 64;
constexpr int32_t kPanelBytes = 128;  // of one row of a panel

// Returns the box of D, which ends with the matrix of its group and section. Sections whose rows
// alternate are a dimension of their own.
TensorBox output_box(const ContractionGroupedGemmSpec& spec) {
  const DType element = dtype_of(spec.output);
  const int64_t row_bytes = spec.n * size_bytes(element);
  const auto panel_columns = static_cast<int32_t>(kPanelBytes / size_bytes(element));
  if (spec.is_interleaved)
    return {.dtype = element,
            .rank = 4,
            .dims = {spec.n, spec.sections, result_rows(spec), spec.local_experts},
            .strides_bytes = {row_bytes, spec.sections * row_bytes,
                              spec.sections * result_rows(spec) * row_bytes},
            .box = {panel_columns, 1, kGradientPanelRows, 1},
            .is_swizzled = true};
  return {.dtype = element,
          .rank = 3,
          .dims = {spec.n, result_rows(spec),
                   int64_t{spec.is_separate ? 1 : spec.sections} * spec.local_experts},
          .strides_bytes = {row_bytes, result_rows(spec) * row_bytes},
          .box = {panel_columns, kGradientPanelRows, 1},
          .is_swizzled = true};
}

// Thresholds for the mean tokens of a group: from kMany on L2 adds everything; below kFew most old
// values are loaded. These values were best on an H200, with 8 experts of 4096 x 7168 and 128
// experts of 1536 x 2048 (docs/performance/tried.md).
constexpr int64_t kMany = 2048;
constexpr int64_t kFew = 768;

// A bf16 gradient that is added to is loaded whole: 3 panels of 64 columns.
constexpr int32_t kPanelsOfBf16Tile = 3;

// Where L2 adds everything, CTAs that have many tiles start spread over the time of one tile.
// Scales of rows and bf16 operands gain nothing; 4928 tiles and more were measured
// (docs/performance/tried.md).
constexpr int64_t kLeastStaggeredTiles = 4096;

bool gains_by_staggered_start(const ContractionGroupedGemmSpec& spec) {
  return operands_of(spec) == DType::kF8E4M3 && spec.scales != GradientScales::kRow &&
         busy_ctas(spec) >= kLeastStaggeredTiles;
}

// Returns the box of an operand of wgrad with its columns in blocks of 128: [columns / 128, rows,
// 128]. In bf16 it is [columns, rows] with one token a row, and boxes are MN-major.
TensorBox gradient_operand_box(DType format, int64_t rows, int64_t columns, int32_t box_rows) {
  if (format == DType::kBF16) {
    TensorBox box = mn_major_box(rows, columns, 1);
    box.call_dim = 1;
    return box;
  }
  return {.dtype = format,
          .rank = 3,
          .dims = {kScaledTokens, rows, columns / kScaledTokens},
          .strides_bytes = {kScaledTokens, kScaledTokens * rows},
          .box = {kScaledTokens, box_rows, 1},
          .is_swizzled = true,
          .call_dim = 2};
}

}  // namespace

bool ends_groups(const ContractionGroupedGemmSpec& problem, int32_t splits_alignment) {
  constexpr int32_t kStep = 64;  // bf16 columns
  return operands_of(problem) == DType::kBF16 && splits_alignment % kStep != 0;
}

ContractionGroupedGemmSpec choose_tiles(ContractionGroupedGemmSpec spec, int64_t mean_columns) {
  const ColumnTiles tiles = choose_column_tiles(spec.n);
  spec.wide_tiles = tiles.wide;
  spec.narrow_tiles = tiles.narrow;
  if (!adds(spec.output)) return spec;
  if (spec.output == GradientOutput::kBf16Add) {
    spec.panels_loaded = kPanelsOfBf16Tile;
    return spec;
  }
  if (mean_columns >= kMany) {
    if (gains_by_staggered_start(spec)) spec.start_times = kStartTimes;
    return spec;
  }
  spec.panels_loaded = 3;
  if (mean_columns >= kFew) return spec;
  spec.stages = 3;
  spec.panels_staged = 6;
  spec.panels_loaded = 4;
  return spec;
}

Result<void> check(const ContractionGroupedGemmSpec& problem) {
  const auto refuse = [&](std::string_view part, std::string_view got, std::string_view hint) {
    return fail(Stage::kPlan, ErrorCode::kUnsupported,
                fmt::format("contraction-grouped GEMM: {} \"{}\" with the scales {}", part, got,
                            to_string(problem.scales)),
                std::string(hint));
  };
  if (problem.accumulation == GemmAccumulation::kFast && !has_end_scales(problem))
    return refuse("accumulation", to_string(problem.accumulation),
                  "only sums that meet their scales when they are complete may be one chain: "
                  "tensor, row_column");
  if (problem.has_bf16_operands && problem.scales != GradientScales::kTensor &&
      problem.scales != GradientScales::kNone)
    return refuse("a", to_string(DType::kBF16),
                  "bf16 operands have no scales, or one for each expert: none, tensor");
  if (problem.accumulation == GemmAccumulation::kFast && has_bf16_end_scales(problem))
    return refuse("accumulation", to_string(problem.accumulation),
                  "the tensor cores add bf16 products in fp32 at full speed");
  if (problem.is_a_e5m2 && !has_end_scales(problem))
    return refuse("a", to_string(a_format(problem)),
                  "gradients in e5m2 have the scales tensor or row_column");
  return {};
}

std::vector<std::string> tile_reasons(const ContractionGroupedGemmSpec& spec,
                                      int64_t mean_columns) {
  std::vector<std::string> reasons = {
      fmt::format("{} column tiles of {} and {} of {} cover {} columns", spec.wide_tiles,
                  spec.wide_columns, spec.narrow_tiles, spec.narrow_columns, spec.n),
      fmt::format("a warp of its own stores the results of a tile, in rounds of {} panels of 128 "
                  "bytes a row",
                  spec.panels_staged)};
  if (spec.cluster_ctas > 1) reasons.emplace_back(kClusterReason);
  if (spec.start_times > 1)
    reasons.push_back(
        fmt::format("CTAs start at {} times, spread over the time of a tile, so that old values do "
                    "not come in bursts",
                    spec.start_times));
  if (spec.sections > 1)
    reasons.push_back(fmt::format(
        "the {} sections of {} rows fill tiles of their own: no scale block lies in two of them",
        spec.sections, spec.section_rows));
  if (spec.is_interleaved)
    reasons.emplace_back(
        "rows of gate and up alternate in the gradient: tensor copies put them so");
  if (spec.is_separate)
    reasons.emplace_back("gate and up have gradients of their own: a tile belongs to one of them");
  if (spec.ends_groups)
    reasons.emplace_back(
        "groups start anywhere: rows of the next group are made zeros in a group's last step");
  if (operands_of(spec) == DType::kBF16)
    reasons.emplace_back(
        "tokens lie as rows, and WGMMA takes bf16 from columns too: nothing is transposed");
  if (has_end_scales(spec))
    reasons.emplace_back("scales do not change along a group, so complete sums meet them, once");
  if (spec.output == GradientOutput::kBf16Add)
    reasons.emplace_back(
        "the old gradient of a tile is loaded under its products and added in registers, with one "
        "rounding to bf16");
  if (spec.output == GradientOutput::kF32Add) {
    reasons.push_back(
        fmt::format("at about {} tokens a group, the old gradient of the first {} panels of a tile "
                    "is loaded and "
                    "added in registers; L2 adds the other panels, about 300 G elements a second",
                    mean_columns, spec.panels_loaded));
  }
  return reasons;
}

std::vector<TensorMapPlan> contraction_grouped_gemm_tensor_maps(
    const ContractionGroupedGemmSpec& spec, int64_t columns, const GemmTensors& tensors) {
  const int32_t box_rows = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  TensorBox b_box = gradient_operand_box(operands_of(spec), spec.n, columns, box_rows);
  b_box.box[1] /= spec.cluster_ctas;  // each CTA copies a part: rows, or tokens of MN-major boxes
  std::vector<TensorMapPlan> maps = {
      {"a_map", tensors.a, gradient_operand_box(a_format(spec), spec.rows, columns, kTileRows)},
      {"b_map", tensors.b, b_box},
      {"d_map", tensors.d, output_box(spec)}};
  if (spec.is_separate) maps.push_back({"d_up_map", tensors.d_up, output_box(spec)});
  return maps;
}

KernelPlan contraction_grouped_gemm_kernel(const ContractionGroupedGemmSpec& problem,
                                           int64_t columns, int64_t mean_columns,
                                           const GemmTensors& tensors, const Target& target,
                                           const PlanOptions& options) {
  KernelPlan kernel{.problem = problem_name(problem, mean_columns)};
  const ContractionGroupedGemmSpec spec = choose_candidate(
      kernel, target, options, [&] { return choose_tiles(problem, mean_columns); },
      [&] { return contraction_grouped_gemm_candidates(problem, mean_columns); });
  kernel.spec = spec;
  kernel.tensor_maps = contraction_grouped_gemm_tensor_maps(spec, columns, tensors);
  kernel.reasons = tile_reasons(spec, mean_columns);
  return kernel;
}

Result<KernelPlan> plan_contraction_grouped_gemm(const ContractionGroupedGemmSpec& problem,
                                                 int64_t columns, const Target& target,
                                                 const PlanOptions& options) {
  MOEJIT_TRY(check(problem));
  KernelPlan kernel = contraction_grouped_gemm_kernel(
      problem, columns, columns / problem.local_experts, {"a", "b", "d"}, target, options);
  kernel.operation = "contraction_grouped_gemm";
  kernel.arguments = {{"counts", "counts"}, {"offs", "offs"}, {"elapsed", "elapsed"}};
  if (problem.scales != GradientScales::kNone) {
    kernel.arguments.push_back({"a_scale_inv", "a_scale_inv"});
    kernel.arguments.push_back({"b_scale_inv", "b_scale_inv"});
  }
  complete_kernel(kernel, bounds_of_rows(columns, problem.local_experts,
                                         problem.ends_groups ? 1 : kScaledTokens));
  kernel.reasons.push_back("group sizes are read on the device; the host never waits for them");
  return kernel;
}

}  // namespace moejit::compiler
