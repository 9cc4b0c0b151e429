// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>

namespace moejit::compiler {
namespace {

bool is_gated(const GroupedGemmSpec& spec) { return tile_sections(spec) > 1 && !spec.is_swapped; }
bool is_gated_swapped(const GroupedGemmSpec& spec) {
  return tile_sections(spec) > 1 && spec.is_swapped;
}

// Returns whether tiles may have tails. Half of a tile's columns is not a whole number of boxes of
// an MN-major B, unless tiles are made for it.
bool has_tails(const GroupedGemmSpec& spec) {
  return spec.b_major == Major::kK || spec.has_column_halves;
}

bool loads_b_ahead(const GroupedGemmSpec& spec) {
  return spec.overlap == GemmOverlap::kLoadsB || spec.overlap == GemmOverlap::kFindsGroups;
}

// A stage of the kernel: its type, and the file that defines it.
struct Part {
  std::string type;
  std::string include;
};

Part scales_part(const GroupedGemmSpec& spec) {
  switch (spec.scales) {
    case GemmScales::kRowBlock:
      if (is_gated_swapped(spec))
        return {"GatedSwappedRowBlockScales<Problem, Shape>",
                "gemm/gated_swapped_row_block_scales.cuh"};
      if (spec.is_swapped)
        return {"SwappedRowBlockScales<Problem, Shape>", "gemm/swapped_row_block_scales.cuh"};
      if (is_halved(spec))
        return {"HalvedRowBlockScales<Problem, Shape>", "gemm/halved_row_block_scales.cuh"};
      return {"RowBlockScales<Problem, Shape>", "gemm/row_block_scales.cuh"};
    case GemmScales::kTensor:
    case GemmScales::kRowColumn:
    case GemmScales::kSection:  // the epilogue applies these three
    case GemmScales::kNone: return {"NoScales", "gemm/no_scales.cuh"};
  }
  return {};
}

// Returns the epilogue's type for scales that are applied at the end; empty if there are none.
std::string factors_type(const GroupedGemmSpec& spec) {
  switch (spec.scales) {
    case GemmScales::kRowBlock:
    case GemmScales::kNone: break;
    case GemmScales::kTensor: return "TensorFactors";
    case GemmScales::kRowColumn:
      return spec.is_swapped ? "SwappedRowColumnFactors<Problem>" : "RowColumnFactors<Problem>";
    case GemmScales::kSection:
      return fmt::format("SectionFactors<Problem, {}>", packed_tile(spec.b_packed).code_factor);
  }
  return {};
}

Part epilogue_part(const GroupedGemmSpec& spec) {
  if (is_gated_swapped(spec) && quantizes_activation(spec))
    return {
        fmt::format("SwappedEpilogueActivationQuantize<Problem, Shape, Activation, kEpsilonBits{}>",
                    spec.rounds_activation ? ", kRounds" : ""),
        "gemm/swapped_epilogue_activation_quantize.cuh"};
  switch (spec.epilogue) {
    case GemmEpilogue::kStoreBf16:
      if (spec.is_swapped)
        return {"SwappedEpilogueStoreBf16<Problem>", "gemm/swapped_epilogue_store_bf16.cuh"};
      return {"EpilogueStoreBf16<Problem>", "gemm/epilogue_store_bf16.cuh"};
    case GemmEpilogue::kActivationQuantize:
      return {"EpilogueActivationQuantize<Problem, Activation, kEpsilonBits>",
              "gemm/epilogue_activation_quantize.cuh"};
    case GemmEpilogue::kStoreAndActivationQuantize:
      return {"EpilogueStoreAndActivationQuantize<Problem, Activation, kEpsilonBits>",
              "gemm/epilogue_activation_quantize.cuh"};
    case GemmEpilogue::kActivation:
    case GemmEpilogue::kStoreAndActivation:
      return {"SwappedEpilogueActivation<Problem, Activation>",
              "gemm/swapped_epilogue_activation.cuh"};
  }
  return {};
}

std::string multiply_type(const GroupedGemmSpec& spec) {
  if (is_b_packed(spec)) return std::string(packed_tile(spec.b_packed).multiply);
  if (spec.is_a_e5m2) return spec.is_swapped ? "MultiplyE4m3E5m2" : "MultiplyE5m2E4m3";
  if (spec.operands != DType::kBF16) return "MultiplyE4m3";
  return spec.b_major == Major::kMn ? "MultiplyBf16<ptx::Major::kK, ptx::Major::kMn>"
                                    : "MultiplyBf16<ptx::Major::kK, ptx::Major::kK>";
}

ComposedType mainloop_type(const GroupedGemmSpec& spec) {
  const std::string multiply = multiply_type(spec);
  if (is_b_packed(spec))
    return {"Mainloop", std::string(packed_tile(spec.b_packed).mainloop), {multiply}};
  if (is_halved(spec)) return {"Mainloop", "HalvedMainloop", {multiply}};
  if (is_gated_swapped(spec) && quantizes_activation(spec))
    return {"Mainloop", "GatedSwappedMainloop", {multiply}};
  const std::string half = spec.has_column_halves ? "ColumnHalf" : "";
  if (is_one_chain(spec))
    return {"Mainloop", half.empty() ? "AccumulatingMainloop" : half + "Mainloop", {multiply}};
  return {"Mainloop", half + "PromotingMainloop", {multiply, "kBlocksPerPromotion"}};
}

ComposedType shape_type(const GroupedGemmSpec& spec) {
  if (is_gated(spec)) {
    ComposedType shape{"Shape", "GatedTileShape", {"kSectionN", "kStages"}};
    if (spec.cluster_ctas > 1) shape.arguments.emplace_back("kClusterCtas");
    if (spec.shares_a) shape.arguments.emplace_back("kSharesA");
    return shape;
  }
  if (spec.is_swapped) {
    ComposedType shape{"Shape", "SwappedTileShape", {"kRows", "kColumnTiles", "kStages"}};
    if (spec.cluster_ctas > 1 || is_gated_swapped(spec) || is_b_packed(spec))
      shape.arguments.emplace_back(spec.cluster_ctas > 1 ? "kClusterCtas" : "1");
    if (is_gated_swapped(spec))
      shape.arguments.insert(shape.arguments.end(), {"kSections", "kAlternates"});
    if (quantizes_activation(spec)) shape.arguments.emplace_back("256");
    if (is_b_packed(spec))
      shape.arguments.insert(
          shape.arguments.end(),
          {"1", "false", "128", std::string(packed_tile(spec.b_packed).bytes_constant)});
    if (spec.ctas_per_sm > 1) {
      if (!is_gated_swapped(spec))
        shape.arguments.insert(shape.arguments.end(), {"1", "1", "false"});
      shape.arguments.insert(shape.arguments.end(), {"64", "64 * 128", "kCtasPerSm"});
    }
    return shape;
  }
  if (spec.has_column_halves)
    return {"Shape", "ColumnHalfTileShape", {"kColumns", "kColumnTiles", "kStages"}};
  ComposedType shape{"Shape",
                     "GemmTileShape",
                     {"kWideColumns", "kWideTiles", "kNarrowColumns", "kNarrowTiles", "kStages"}};
  if (!has_tails(spec) || spec.cluster_ctas > 1) shape.arguments.emplace_back("kTailRows");
  if (spec.cluster_ctas > 1) shape.arguments.emplace_back("kClusterCtas");
  if (spec.shares_a) shape.arguments.insert(shape.arguments.end(), {"RowHalf", "kSharesA"});
  return shape;
}

std::vector<NamedConstant> tile_constants(const GroupedGemmSpec& spec) {
  if (is_gated(spec)) return {};  // the constants of the section suffice
  if (spec.is_swapped) {
    return {integer_constant("kRows", spec.tile_rows, "most rows of a tile"),
            integer_constant("kColumnTiles", spec.narrow_tiles,
                             fmt::format("of {} columns, in a section", spec.narrow_columns))};
  }
  if (spec.has_column_halves) {
    return {integer_constant("kColumns", spec.narrow_columns, "of a tile"),
            integer_constant("kColumnTiles", spec.narrow_tiles, "of a section")};
  }
  return {integer_constant("kWideColumns", spec.wide_columns, "columns of a wide tile"),
          integer_constant("kWideTiles", spec.wide_tiles, "of a section; behind them"),
          integer_constant("kNarrowColumns", spec.narrow_columns, "columns of a narrow tile"),
          integer_constant("kNarrowTiles", spec.narrow_tiles, "of a section")};
}

std::vector<std::string> includes_of(const GroupedGemmSpec& spec) {
  std::vector<std::string> includes = {epilogue_part(spec).include, "gemm/grouped_gemm.cuh",
                                       scales_part(spec).include, "gemm/row_group_scheduler.cuh",
                                       "params/grouped_gemm_params.h"};
  if (spec.is_swapped) includes.push_back("gemm/swapped_tile.cuh");
  if (is_b_packed(spec))
    includes.emplace_back(packed_tile(spec.b_packed).include);
  else if (spec.has_column_halves)
    includes.insert(includes.end(), {is_one_chain(spec) ? "gemm/column_half_mainloop.cuh"
                                                        : "gemm/column_half_promoting_mainloop.cuh",
                                     "gemm/column_half_tile.cuh"});
  else if (is_one_chain(spec))
    includes.push_back("gemm/accumulating_mainloop.cuh");
  if (spec.scales == GemmScales::kSection)
    includes.push_back("gemm/section_factors.cuh");
  else if (!factors_type(spec).empty())
    includes.push_back("gemm/epilogue_scaled.cuh");
  if (spec.bias != GemmBias::kNone) includes.push_back("gemm/epilogue_biased.cuh");
  if (is_halved(spec)) includes.push_back("gemm/halved_mainloop.cuh");
  if (is_gated_swapped(spec) && quantizes_activation(spec))
    includes.push_back("gemm/gated_swapped_mainloop.cuh");
  if (is_gated_swapped(spec) && stores_result(spec))
    includes.push_back("gemm/swapped_epilogue_store_both.cuh");
  if (is_gated(spec)) includes.push_back("gemm/gated_tile.cuh");
  std::ranges::sort(includes);
  if (is_separate(spec)) includes.insert(includes.begin(), "gemm/separate_weights.cuh");
  return includes;
}

std::vector<NamedConstant> constants_of(const GroupedGemmSpec& spec) {
  const auto step = static_cast<int32_t>(kStepBytes / size_bytes(spec.operands));
  std::vector<NamedConstant> constants = {
      integer_constant("kGroups", spec.local_experts, "groups of rows, one for each expert"),
      integer_constant("kSections", spec.sections, "stacked matrices in B, as gate and up"),
      integer_constant("kSectionN", spec.section_n, "columns of D from each"),
      integer_constant("kK", spec.k, "contraction"),
      integer_constant("kStepElements", step, "elements of it in a stage"),
  };
  std::ranges::copy(tile_constants(spec), std::back_inserter(constants));
  constants.push_back(
      integer_constant("kStages", spec.stages, "steps of the contraction in shared memory"));
  if (spec.band_tiles != kUsualBandTiles)
    constants.push_back(integer_constant("kBandTiles", spec.band_tiles, "row tiles in a band"));
  if (!has_tails(spec)) {
    constants.push_back(integer_constant("kTailRows", 0, "no tile is treated as a tail"));
  } else if (spec.cluster_ctas > 1 && !is_gated(spec) && !spec.is_swapped) {
    constants.push_back(integer_constant("kTailRows", 64, "most rows of a tail"));
  }
  if (spec.cluster_ctas > 1)
    constants.push_back(integer_constant("kClusterCtas", spec.cluster_ctas,
                                         spec.shares_a
                                             ? "CTAs that share A, with tiles beside each other"
                                             : "CTAs that share B, with tiles below each other"));
  if (spec.ctas_per_sm > 1)
    constants.push_back(integer_constant("kCtasPerSm", spec.ctas_per_sm, "CTAs that share an SM"));
  if (spec.shares_a && !spec.is_swapped)
    constants.push_back(bool_constant("kSharesA", true, "instead of B"));
  if (is_gated_swapped(spec))
    constants.push_back(
        bool_constant("kAlternates", spec.is_interleaved, "gate and up alternate in B's rows"));
  if (quantizes_activation(spec)) {
    constants.push_back(
        float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"));
  } else if (!is_one_chain(spec) && !is_halved(spec) && !is_b_packed(spec)) {
    constants.push_back(integer_constant("kBlocksPerPromotion", spec.blocks_per_promotion,
                                         spec.scales == GemmScales::kRowBlock
                                             ? "steps added up before they are scaled"
                                             : "steps that are one partial sum"));
  }
  if (spec.rounds_activation)
    constants.push_back(
        bool_constant("kRounds", true, "the activation to bf16 before it is quantized"));
  if (spec.bias != GemmBias::kNone) {
    const bool times_prob = spec.bias == GemmBias::kColumnsTimesProb;
    if (!is_gated_swapped(spec))
      constants.push_back(bool_constant("kBiasTimesProb", times_prob,
                                        "the bias is multiplied with the row's probability"));
    constants.push_back(bool_constant("kInterleavedBias",
                                      spec.has_interleaved_bias || spec.is_interleaved,
                                      "gate and up alternate in the bias"));
  }
  const bool overlaps = spec.overlap != GemmOverlap::kNone;
  if (loads_b_ahead(spec) && spec.band_tiles == kUsualBandTiles)
    constants.push_back(integer_constant("kBandTiles", spec.band_tiles, "row tiles in a band"));
  if (spec.overlap == GemmOverlap::kFindsGroups)
    constants.push_back(integer_constant("kTopK", spec.top_k, "choices of a token"));
  if (spec.zeros_rest)
    constants.push_back(
        bool_constant("kZerosRest", true, "rows of D behind the last group's become zeros"));
  else if (overlaps)
    constants.push_back(bool_constant("kZerosRest", false, "the rest of D is left alone"));
  if (overlaps)
    constants.push_back({"Overlap", "kOverlap",
                         spec.overlap == GemmOverlap::kFindsGroups ? "Overlap::kFindsGroups"
                         : spec.overlap == GemmOverlap::kLoadsB    ? "Overlap::kLoadsB"
                                                                   : "Overlap::kBarriers",
                         "what comes ahead of the wait"});
  return constants;
}

std::string scheduler_type(const GroupedGemmSpec& spec) {
  if (spec.overlap == GemmOverlap::kFindsGroups)
    return "RowGroupScheduler<Problem, Shape, kBandTiles, Groups>";
  if (spec.overlap == GemmOverlap::kLoadsB)
    return "RowGroupScheduler<Problem, Shape, kBandTiles, GroupsOfMemory<true>>";
  return spec.band_tiles == kUsualBandTiles ? "RowGroupScheduler<Problem, Shape>"
                                            : "RowGroupScheduler<Problem, Shape, kBandTiles>";
}

// Returns the maps of B's two tensors, and how many rows of each a matrix counts.
ComposedType weights_type(const GroupedGemmSpec& spec) {
  ComposedType weights{
      "Weights", "SeparateWeights", {spec.b_major == Major::kMn ? "kK / 2" : "kSectionN"}};
  if (is_gated_swapped(spec)) weights.arguments.emplace_back("Shape::kTileColumns / 2");
  return weights;
}

ComposedType bias_type(const GroupedGemmSpec& spec) {
  return {"Bias",
          is_gated_swapped(spec) ? "GatedSwappedColumnBias"
          : spec.is_swapped      ? "SwappedColumnBias"
                                 : "ColumnBias",
          {"Problem", is_gated_swapped(spec) ? "Shape" : "kBiasTimesProb", "kInterleavedBias"}};
}

std::string scales_type(const GroupedGemmSpec& spec) {
  const std::string type = scales_part(spec).type;
  return spec.has_column_halves && !is_one_chain(spec) ? fmt::format("ColumnHalfScales<{}>", type)
                                                       : type;
}

std::vector<ComposedType> types_of(const GroupedGemmSpec& spec) {
  std::vector<ComposedType> types = {
      {"Problem", "RowGroupProblem", {"kGroups", "kSections", "kSectionN", "kK", "kStepElements"}},
      shape_type(spec),
      mainloop_type(spec),
  };
  std::string epilogue = epilogue_part(spec).type;
  const std::string factors = factors_type(spec);
  const auto add_factors = [&] {
    types.push_back({"Epilogue", "EpilogueScaled", {factors, epilogue}});
    epilogue = "Epilogue";
  };
  // Scales of sections are a part of the weights: sums meet them before the bias.
  const bool are_first = spec.scales == GemmScales::kSection;
  if (!factors.empty() && !are_first) add_factors();
  if (is_gated_swapped(spec) && stores_result(spec)) {
    types.push_back({"BothEpilogue", "SwappedEpilogueStoreBoth", {"Problem", "Shape", epilogue}});
    epilogue = "BothEpilogue";
  }
  if (spec.bias != GemmBias::kNone) {
    types.push_back(bias_type(spec));
    types.push_back({"BiasedEpilogue", "EpilogueBiased", {"Bias", epilogue}});
    epilogue = "BiasedEpilogue";
  }
  if (spec.has_column_halves) {
    types.push_back({"HalfEpilogue", "ColumnHalfEpilogue", {"Shape", epilogue}});
    epilogue = "HalfEpilogue";
  }
  if (spec.overlap == GemmOverlap::kFindsGroups)
    types.push_back(
        {"Groups",
         "GroupsOfChoices",
         {"kGroups", "kTopK", spec.topk_ids_dtype == DType::kI64 ? "int64_t" : "int32_t"}});
  if (are_first) add_factors();
  types.push_back({"Kernel",
                   "GroupedGemm",
                   {"Shape", scheduler_type(spec), "Mainloop", scales_type(spec), epilogue}});
  const bool overlaps = spec.overlap != GemmOverlap::kNone;
  if (spec.zeros_rest || overlaps) types.back().arguments.emplace_back("kZerosRest");
  if (overlaps) types.back().arguments.emplace_back("kOverlap");
  if (is_separate(spec)) {
    types.push_back(weights_type(spec));
    types.push_back({"Params", "GroupedGemmParamsOf", {"Weights"}});
  }
  return types;
}

std::string summary_of(const GroupedGemmSpec& spec) {
  const std::string product =
      fmt::format("D[P, {}] = A[P, {}] * B[expert]^T, one B for the rows of each expert",
                  int64_t{spec.sections} * spec.section_n, spec.k) +
      (spec.bias == GemmBias::kNone ? "" : ", and its bias");
  if (!stores_activation(spec)) return product;
  return fmt::format("{}; {} * probability of D{}, to {}", product, spec.activation.preset,
                     stores_result(spec) ? ", which is stored too" : "",
                     quantizes_activation(spec)
                         ? "e4m3, one power-of-two scale for 128 columns of a row"
                         : "bf16");
}

}  // namespace

template <>
KernelText KernelKind<GroupedGemmSpec>::text(const GroupedGemmSpec& spec) {
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  return {
      .types = fmt::format(
          "{}{}_{}", stores_activation(spec) ? spec.activation.preset + "_" : "",
          is_b_packed(spec)
              ? fmt::format("{}_{}", packed_tile(spec.b_packed).values, to_string(spec.b_packed))
          : spec.operands == DType::kBF16 ? "bf16"
          : spec.is_a_e5m2                ? "e5m2_e4m3"
                                          : "e4m3",
          quantizes_activation(spec) ? "e4m3" : "bf16"),
      .tile = fmt::format("{}x{}x{}", spec.tile_rows, tile_sections(spec) * columns,
                          kStepBytes / size_bytes(spec.operands)),
      .summary = summary_of(spec),
      .includes = includes_of(spec),
      .params = is_separate(spec) ? "Params" : "GroupedGemmParams",
      .constants = constants_of(spec),
      .own_type = stores_activation(spec) ? value_type_text(spec.activation) : "",
      .types_used = types_of(spec),
      .cluster_ctas = spec.cluster_ctas > 1 ? "kClusterCtas" : "",
  };
}

}  // namespace moejit::compiler
