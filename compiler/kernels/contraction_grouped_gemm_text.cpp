// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/kernel_kind.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::compiler {
namespace {

int32_t step_elements(const ContractionGroupedGemmSpec& spec) {
  return static_cast<int32_t>(128 / size_bytes(operands_of(spec)));
}

// Returns whether the math warpgroups halve a tile's columns instead of its rows. Then a thread
// needs half as many factors of columns, and holds them all. Half of a wide tile's columns are no
// whole panels of bf16.
bool has_column_halves(const ContractionGroupedGemmSpec& spec) {
  return spec.has_column_halves ||
         (spec.scales == GradientScales::kRow && dtype_of(spec.output) == DType::kF32);
}

// Returns whether the text names the CTAs of a cluster, as it must before the tile type takes its
// half.
bool names_cluster(const ContractionGroupedGemmSpec& spec) {
  return spec.cluster_ctas > 1 || has_column_halves(spec);
}

// The parts of the text that multiply and scale.
struct ScalingText {
  std::vector<std::string> includes;
  std::string scales;
  ComposedType mainloop;
};

// Returns the parts for two products that share B's columns, where there was one.
ScalingText with_column_halves(ScalingText scaling) {
  if (scaling.mainloop.template_name == "PromotingMainloop") {
    scaling.mainloop.template_name = "ColumnHalfPromotingMainloop";
    scaling.scales = fmt::format("ColumnHalfScales<{}>", scaling.scales);
    scaling.includes.emplace_back("gemm/column_half_promoting_mainloop.cuh");
    return scaling;
  }
  scaling.mainloop.template_name = "ColumnHalfMainloop";
  std::ranges::replace(scaling.includes, "gemm/accumulating_mainloop.cuh",
                       "gemm/column_half_mainloop.cuh");
  return scaling;
}

// Returns the parts for scales that multiply complete sums.
ScalingText end_scaling_of(const ContractionGroupedGemmSpec& spec, const std::string& multiply) {
  ScalingText scaling{
      .includes = {"gemm/epilogue_scaled.cuh", "gemm/no_scales.cuh"},
      .scales = "NoScales",
      .mainloop = {"Mainloop", "PromotingMainloop", {multiply, "kBlocksPerPromotion"}}};
  if (spec.accumulation == GemmAccumulation::kFast || has_bf16_end_scales(spec)) {
    scaling.includes.emplace_back("gemm/accumulating_mainloop.cuh");
    scaling.mainloop = {"Mainloop", "AccumulatingMainloop", {multiply}};
  }
  return scaling;
}

ScalingText scaling_of(const ContractionGroupedGemmSpec& spec) {
  const std::string multiply = operands_of(spec) == DType::kBF16
                                   ? "MultiplyBf16<ptx::Major::kMn, ptx::Major::kMn>"
                               : spec.is_a_e5m2 ? "MultiplyBlockedE5m2E4m3"
                                                : "MultiplyBlockedE4m3";
  switch (spec.scales) {
    case GradientScales::kTile:
      return {.includes = {"gemm/tile_scales.cuh"},
              .scales = "TileScales<Problem, Shape>",
              .mainloop = {"Mainloop", "PromotingMainloop", {multiply, "kBlocksPerPromotion"}}};
    case GradientScales::kRow:
      if (has_column_halves(spec))
        return {.includes = {"gemm/row_scaled_column_half_mainloop.cuh", "gemm/row_scales.cuh"},
                .scales = "RowScales<Problem, Shape>",
                .mainloop = {"Mainloop", "RowScaledColumnHalfMainloop", {multiply}}};
      return {.includes = {"gemm/row_scaled_mainloop.cuh", "gemm/row_scales.cuh"},
              .scales = "RowScales<Problem, Shape>",
              .mainloop = {"Mainloop", "RowScaledMainloop", {multiply}}};
    case GradientScales::kTensor:
    case GradientScales::kRowColumn: return end_scaling_of(spec, multiply);
    case GradientScales::kNone:
      return {.includes = {"gemm/accumulating_mainloop.cuh", "gemm/no_scales.cuh"},
              .scales = "NoScales",
              .mainloop = {"Mainloop", "AccumulatingMainloop", {multiply}}};
  }
  return {};
}

// Returns the parts with columns behind a group made zeros, which stands where scales would.
ScalingText with_ends_of_groups(ScalingText scaling) {
  scaling.scales = "GroupTail";
  std::ranges::replace(scaling.includes, "gemm/no_scales.cuh", "gemm/group_tail.cuh");
  return scaling;
}

std::vector<std::string> includes_of(const ContractionGroupedGemmSpec& spec,
                                     const ScalingText& scaling) {
  std::vector<std::string> includes = {"gemm/contraction_group_scheduler.cuh",
                                       "gemm/epilogue_store_gradient.cuh", "gemm/grouped_gemm.cuh",
                                       spec.is_separate
                                           ? "params/separate_gradients_params.h"
                                           : "params/contraction_grouped_gemm_params.h"};
  includes.insert(includes.end() - 1, scaling.includes.begin(), scaling.includes.end());
  if (spec.start_times > 1) includes.emplace_back("gemm/staggered_start.cuh");
  std::ranges::sort(includes);
  if (spec.is_separate) includes.insert(includes.begin(), "gemm/section_maps.cuh");
  return includes;
}

std::vector<NamedConstant> constants_of(const ContractionGroupedGemmSpec& spec) {
  std::vector<NamedConstant> constants = {
      integer_constant("kGroups", spec.local_experts, "groups of columns, one for each expert"),
      integer_constant("kSections", spec.sections, "parts of A's rows, each with a D of its own"),
      integer_constant("kRows", spec.rows, "of A"),
      integer_constant("kN", spec.n, "rows of B, columns of D"),
      integer_constant("kStepElements", step_elements(spec), "of the contraction in a stage"),
      bool_constant("kAdds", adds(spec.output), "to what D holds; then empty groups are skipped"),
      integer_constant("kWideColumns", spec.wide_columns, "columns of a wide tile"),
      integer_constant("kWideTiles", spec.wide_tiles, "in a row of tiles; behind them"),
      integer_constant("kNarrowColumns", spec.narrow_columns, "columns of a narrow tile"),
      integer_constant("kNarrowTiles", spec.narrow_tiles, "in a row of tiles"),
      integer_constant("kStages", spec.stages, "steps of the contraction in shared memory"),
      integer_constant("kTailRows", 0, "no tile is treated as a tail"),
      integer_constant("kPanelsStaged", spec.panels_staged, "64 rows x 128 bytes of D at a time"),
      integer_constant("kPanelsLoaded", spec.panels_loaded, "of a tile, whose old values come"),
  };
  if (spec.scales == GradientScales::kTile) {
    constants.insert(
        constants.end() - 2,
        integer_constant("kBlocksPerPromotion", 1, "steps added up before they are scaled"));
  } else if (has_end_scales(spec) && !has_bf16_end_scales(spec) &&
             spec.accumulation == GemmAccumulation::kFp32) {
    constants.insert(constants.end() - 2,
                     integer_constant("kBlocksPerPromotion", 1, "steps that are one partial sum"));
  }
  if (spec.band_tiles != kUsualBandTiles)
    constants.push_back(integer_constant("kBandTiles", spec.band_tiles, "row tiles in a band"));
  if (names_cluster(spec))
    constants.push_back(integer_constant("kClusterCtas", spec.cluster_ctas,
                                         "CTAs that share B, with tiles below each other"));
  if (spec.start_times > 1)
    constants.push_back(
        integer_constant("kStartTimes", spec.start_times, "of CTAs, spread over that of a tile"));
  if (spec.is_interleaved) {
    constants.insert(constants.begin() + 2,
                     bool_constant("kInterleaved", true, "rows of these parts alternate in D"));
  }
  return constants;
}

std::string tile_order(const ContractionGroupedGemmSpec& spec) {
  return spec.band_tiles == kUsualBandTiles
             ? "ContractionGroupScheduler<Problem, Shape>"
             : "ContractionGroupScheduler<Problem, Shape, kBandTiles>";
}

ComposedType staggered_start(const ContractionGroupedGemmSpec& spec) {
  ComposedType scheduler{
      "Scheduler", "StaggeredStart", {"Problem", tile_order(spec), "kStartTimes"}};
  if (spec.band_tiles != kUsualBandTiles) scheduler.arguments.emplace_back("kBandTiles");
  return scheduler;
}

ComposedType shape_type(const ContractionGroupedGemmSpec& spec) {
  ComposedType shape{
      "Shape",
      "GemmTileShape",
      {"kWideColumns", "kWideTiles", "kNarrowColumns", "kNarrowTiles", "kStages", "kTailRows"}};
  if (names_cluster(spec)) shape.arguments.emplace_back("kClusterCtas");
  if (has_column_halves(spec)) shape.arguments.emplace_back("ColumnHalf");
  return shape;
}

ComposedType problem_type(const ContractionGroupedGemmSpec& spec) {
  ComposedType problem{"Problem",
                       "ContractionGroupProblem",
                       {"kGroups", "kSections", "kRows", "kN", "kStepElements", "kAdds"}};
  if (spec.is_interleaved) problem.arguments.emplace_back("kInterleaved");
  return problem;
}

std::vector<ComposedType> types_of(const ContractionGroupedGemmSpec& spec,
                                   const ScalingText& scaling) {
  std::vector<ComposedType> types = {problem_type(spec), shape_type(spec), scaling.mainloop};
  const std::string element = dtype_of(spec.output) == DType::kBF16 ? "Bf16" : "float";
  const auto add_store = [&](std::string name) {
    types.push_back({std::move(name),
                     "EpilogueStoreGradient",
                     {"Problem", element, "kAdds", "kPanelsStaged", "kPanelsLoaded"}});
  };
  if (has_end_scales(spec)) {
    add_store("Store");
    types.push_back({"Epilogue",
                     "EpilogueScaled",
                     {spec.scales == GradientScales::kTensor ? "TensorFactors"
                                                             : "GradientRowColumnFactors<Problem>",
                      "Store"}});
  } else {
    add_store("Epilogue");
  }
  const bool is_staggered = spec.start_times > 1;
  if (is_staggered) types.push_back(staggered_start(spec));
  types.push_back({"Kernel",
                   "GroupedGemm",
                   {"Shape", is_staggered ? "Scheduler" : tile_order(spec), "Mainloop",
                    scaling.scales, "Epilogue"}});
  return types;
}

std::string_view operands_text(const ContractionGroupedGemmSpec& spec) {
  if (operands_of(spec) == DType::kBF16) return "bf16";
  return spec.is_a_e5m2 ? "e5m2_e4m3" : "e4m3";
}

}  // namespace

template <>
KernelText KernelKind<ContractionGroupedGemmSpec>::text(const ContractionGroupedGemmSpec& spec) {
  ScalingText scaling = scaling_of(spec);
  if (spec.has_column_halves) scaling = with_column_halves(std::move(scaling));
  if (spec.ends_groups) scaling = with_ends_of_groups(std::move(scaling));
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  return {
      .types = fmt::format("{}_{}", operands_text(spec),
                           dtype_of(spec.output) == DType::kBF16 ? "bf16" : "f32"),
      .tile = fmt::format("128x{}x{}", columns, step_elements(spec)),
      .summary = fmt::format("D[expert][{}, {}] {} A[{}, columns of expert] * B[{}, columns of "
                             "expert]^T",
                             spec.sections * result_rows(spec), spec.n,
                             adds(spec.output) ? "+=" : "=", spec.rows, spec.n),
      .includes = includes_of(spec, scaling),
      .params = spec.is_separate ? "SeparateGradientsParams" : "ContractionGroupedGemmParams",
      .constants = constants_of(spec),
      .types_used = types_of(spec, scaling),
      .cluster_ctas = spec.cluster_ctas > 1 ? "kClusterCtas" : "",
  };
}

}  // namespace moejit::compiler
