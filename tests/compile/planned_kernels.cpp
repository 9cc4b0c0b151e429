// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/planned_kernels.h"

#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/planner/grouped_gemm.h"
#include "tests/compile/layer_kernels.h"
#include "tests/compile/planned_routers.h"
#include "tests/compile/planned_transposes.h"
#include "tests/support/matchers.h"

#include <fmt/core.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

namespace moejit::testing {
namespace {

using compiler::Dispatch;
using compiler::KernelPlan;

compiler::Layer routed_as_in_frameworks(compiler::Layer layer) {
  layer.topk_ids_dtype = compiler::IndexDtype::kI64;
  layer.topk_probs_dtype = compiler::TopkProbsDtype::kBf16;
  layer.foreign_experts = compiler::ForeignExperts::kIgnore;
  return layer;
}

// The layer of one rank, for rows in the order of experts.
compiler::Layer grouped(compiler::Layer layer) {
  layer.input = compiler::LayerInput::kGrouped;
  layer.tokens_per_expert_dtype = compiler::IndexDtype::kI64;
  layer.experts = layer.local_experts;
  layer.top_k = 1;
  layer.splits_alignment = 1;
  layer.max_permuted_rows = layer.max_tokens;
  layer.dispatch = Dispatch::kNone;
  layer.passes = {compiler::Pass::kForward, compiler::Pass::kBackward};
  return layer;
}

// The layer with packed weights, for tiles of 16 and of 128 rows.
void add_packed(compiler::Layer layer, const compiler::Recipe& recipe,
                const compiler::Format& weights, std::vector<compiler::Layer>& all) {
  layer.recipe = recipe;
  layer.recipe.weights = weights;
  layer.dispatch = Dispatch::kNone;
  for (const int64_t tokens : {16, 4096}) {
    layer.max_tokens = tokens;
    layer.max_permuted_rows = worst_case_permuted_rows(layer);
    all.push_back(layer);
  }
}

std::vector<compiler::Layer> layers() {
  std::vector<compiler::Layer> all;
  for (const char* name : {"deepseek-v3-ep8", "gpt-oss-20b", "qwen3-30b-a3b", "olmoe-1b-7b"}) {
    const std::string path =
        std::string(MOEJIT_SOURCE_DIR) + "/docs/examples/layers/" + name + ".json";
    std::ifstream file(path);
    const std::string json{std::istreambuf_iterator<char>(file), {}};
    auto layer = compiler::parse_layer(json, path);
    EXPECT_TRUE(succeeded(layer));
    if (!layer) continue;
    for (const Dispatch dispatch : {Dispatch::kNone, Dispatch::kFp8}) {
      layer->dispatch = dispatch;
      layer->scale_sharing_k = 1;
      layer->fuse_activation = dispatch == Dispatch::kNone;
      all.push_back(*layer);
    }
    if (layer->experts >= 128) {  // the others have the same kernels, or no backward pass
      compiler::Layer checked = *layer;
      checked.weight_checks = true;
      all.push_back(checked);
      compiler::Layer training = *layer;
      training.passes = {compiler::Pass::kForward, compiler::Pass::kBackward};
      all.push_back(training);
      all.push_back(routed_as_in_frameworks(training));
      training.recipe = compiler::Recipe::kBf16;
      training.dispatch = Dispatch::kNone;
      all.push_back(training);
      add_packed(*layer, compiler::Recipe::kBf16, compiler::kPackedInt4, all);
      training.recipe = compiler::Recipe::kFp8Current;
      all.push_back(training);
      training.recipe = compiler::Recipe::kFp8Delayed;
      all.push_back(training);
      training.recipe = compiler::Recipe::kFp8Rowwise;
      all.push_back(training);
      all.push_back(grouped(*layer));
    }
    if (layer->biases) {  // gpt-oss; and its biases without the fused activation
      compiler::Layer training = *layer;
      training.passes = {compiler::Pass::kForward, compiler::Pass::kBackward};
      training.dispatch = Dispatch::kNone;
      training.fuse_activation = true;
      all.push_back(training);
      training.recipe = compiler::Recipe::kBf16;
      all.push_back(training);
      training.activation = compiler::make_activation("relu_squared").value();
      training.gate_up_layout = compiler::GateUpLayout::kConcat;
      all.push_back(training);
      training.recipe = compiler::Recipe::kFp8Flow;
      all.push_back(training);
      for (const int64_t tokens : {16, 4096}) {  // tiles of 16 and of 128 rows
        compiler::Layer packed = *layer;
        packed.recipe.weights = compiler::kPackedTiles;
        packed.max_tokens = tokens;
        packed.max_permuted_rows = worst_case_permuted_rows(packed);
        all.push_back(packed);
      }
      add_packed(*layer, compiler::Recipe::kBf16, compiler::kPackedNvfp4, all);
    }
    layer->scale_sharing_k = 2;
    all.push_back(*layer);
    // Swapped tiles of each size.
    for (const auto& [tokens, sharing] : {std::pair{16, 1}, {32, 2}, {64, 1}, {256, 1}}) {
      layer->max_tokens = tokens;
      layer->max_permuted_rows = worst_case_permuted_rows(*layer);
      layer->scale_sharing_k = sharing;
      all.push_back(*layer);
      compiler::Layer fused = *layer;
      fused.dispatch = Dispatch::kNone;
      fused.scale_sharing_k = 1;
      fused.fuse_activation = true;
      all.push_back(fused);
      fused.recipe = compiler::Recipe::kBf16;
      all.push_back(fused);
    }
  }
  return all;
}

void add_kernel(const KernelPlan& kernel, const compiler::Target& target,
                std::map<std::string, PlannedKernel>& all) {
  const auto source = compiler::emit_kernel(kernel, target);
  EXPECT_TRUE(succeeded(source));
  if (source) all.try_emplace(source->entry, PlannedKernel{kernel.spec, *source});
}

// Each text once, by its entry's name.
std::map<std::string, PlannedKernel> kernels() {
  std::map<std::string, PlannedKernel> all;
  for (const compiler::Layer& layer : layers()) {
    for (const bool keep_intermediates : {false, true}) {
      const auto plan = plan_layer(layer, {}, {.keep_intermediates = keep_intermediates});
      EXPECT_TRUE(succeeded(plan));
      if (!plan) continue;
      for (const KernelPlan& kernel : plan->kernels) {
        add_kernel(kernel, plan->target, all);
      }
    }
  }
  return all;
}

// Weight gradients with all kinds of scales, in every output and each of the planner's ways to
// add, and those of clusters, also without scales.
void add_gradients(std::map<std::string, PlannedKernel>& all) {
  using compiler::GradientOutput;
  using compiler::GradientScales;
  struct Case {
    GradientOutput output;
    int64_t mean_columns;
    int32_t rows, n;
  };
  constexpr Case kCases[] = {
      {GradientOutput::kBf16, 4096, 4096, 7168},   {GradientOutput::kF32, 4096, 4096, 7168},
      {GradientOutput::kF32Add, 4096, 4096, 7168}, {GradientOutput::kF32Add, 1024, 5760, 2880},
      {GradientOutput::kF32Add, 256, 2048, 768},   {GradientOutput::kBf16Add, 4096, 4096, 7168},
  };
  const auto add = [&](const compiler::ContractionGroupedGemmSpec& spec) {
    add_kernel({.operation = "wgrad", .spec = spec}, {}, all);
  };
  for (const GradientScales scales :
       {GradientScales::kTile, GradientScales::kRow, GradientScales::kTensor,
        GradientScales::kRowColumn, GradientScales::kNone}) {
    for (const Case& one : kCases) {
      auto spec = compiler::choose_tiles({.scales = scales,
                                          .output = one.output,
                                          .is_a_e5m2 = scales == GradientScales::kTensor,
                                          .local_experts = 8,
                                          .rows = one.rows,
                                          .n = one.n},
                                         one.mean_columns);
      if (scales != GradientScales::kNone) add(spec);
      if (!may_be_clustered(spec)) continue;
      spec.cluster_ctas = 2;
      add(spec);
    }
  }
}

// Maps whose bytes a thread reads 16, 4 and one at a time.
void add_route_maps(std::map<std::string, PlannedKernel>& all) {
  for (const int32_t experts : {64, 60, 7}) {
    const compiler::RouteMapSpec spec{
        .local_experts = experts, .top_k = 6, .splits_alignment = 16, .warps = 32};
    add_kernel({.operation = "route", .spec = spec}, {}, all);
  }
}

// Weights in both orientations, unpermute with gradients of probabilities, and permute_pad that
// asks L2 for rows in bursts: whole and partial tiles, sections and rows of tiles, and blocks that
// are and are not loaded four at a time.
void add_chains(std::map<std::string, PlannedKernel>& all) {
  const auto add = [&](const compiler::KernelSpec& spec) {
    add_kernel({.operation = "chain", .spec = spec}, {}, all);
  };
  struct Weights {
    int32_t sections, section_rows, columns;
  };
  constexpr Weights kWeights[] = {
      {2, 2048, 7168}, {1, 7168, 2048}, {2, 2880, 2880}, {1, 2880, 2880}, {2, 176, 144}};
  for (const Weights& one : kWeights) {
    for (const int32_t sharing : {1, 2}) {
      add(compiler::TileChainSpec{.sections = one.sections,
                                  .section_rows = one.section_rows,
                                  .columns = one.columns,
                                  .tiles_per_scale = sharing,
                                  .writes_colwise = true,
                                  .threads = 256 * sharing});
    }
    add(compiler::TileChainSpec{.sections = one.sections,
                                .section_rows = one.section_rows,
                                .columns = one.columns,
                                .writes_rows = false,
                                .writes_colwise = true});
  }
  for (const auto load : {compiler::LoadStage::kQuantizedRows, compiler::LoadStage::kRows,
                          compiler::LoadStage::kTwoLevelRows})
    add(compiler::RowChainSpec{.load = load,
                               .quantize = compiler::QuantizeStage::kKeep,
                               .store = compiler::StoreStage::kPermuted,
                               .columns = 7168,
                               .local_experts = 8,
                               .top_k = 8,
                               .rows_per_burst = 208});
  add(compiler::RowChainSpec{.load = compiler::LoadStage::kTwoLevelRows,
                             .quantize = compiler::QuantizeStage::kKeep,
                             .store = compiler::StoreStage::kPermuted,
                             .columns = 2896,
                             .local_experts = 8,
                             .top_k = 12});
  for (const int32_t top_k : {1, 4, 8, 10, 16, 17, 22, 32, 40}) {
    for (const int32_t columns : {1, 6, 16, 23}) {
      add(compiler::RowChainSpec{.load = compiler::LoadStage::kCombinedRows,
                                 .quantize = compiler::QuantizeStage::kNone,
                                 .store = compiler::StoreStage::kRowsAndProbs,
                                 .columns = top_k == 8 ? 7168 : 2880,
                                 .top_k = top_k,
                                 .threads = 128,
                                 .segments_in_flight = 1,
                                 .dprobs_columns = columns});
    }
  }
}

// What kernels leave out where a layer does not compute all gradients.
void add_some_gradients(std::map<std::string, PlannedKernel>& all) {
  using enum compiler::Gradient;
  compiler::Layer gated{.experts = 32,
                        .local_experts = 32,
                        .top_k = 4,
                        .hidden = 2880,
                        .intermediate = 2880,
                        .biases = true,
                        .splits_alignment = 64,
                        .max_tokens = 8192,
                        .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  gated.max_permuted_rows = worst_case_permuted_rows(gated);
  compiler::Layer up = gated, bf16 = gated;
  up.activation = compiler::make_activation("relu_squared").value();
  bf16.recipe = compiler::Recipe::kBf16;
  const std::vector<std::vector<compiler::Gradient>> lists = {
      {kDx}, {kDprobs}, {kDw1, kDw2}, {kDprobs, kDw1, kDw2}, {kDx, kDw2}, {kDprobs, kDw2}, {kDw2}};
  for (compiler::Layer layer : {gated, up, bf16})
    for (const auto& list : lists) {
      layer.gradients = list;
      const auto plan = plan_layer(layer, {});
      EXPECT_TRUE(succeeded(plan));
      if (!plan) continue;
      for (const KernelPlan& kernel : plan->kernels) {
        const bool differs = kernel.operation.find("activation") != std::string::npos ||
                             kernel.operation.starts_with("unpermute");
        if (!differs || kernel.phase != "backward") continue;
        add_kernel(kernel, plan->target, all);
      }
    }
}

// Every activation where it stands alone, in the GEMM's epilogue and backward; the last ones have
// the functions that presets have not, but for division and square root, whose slow paths spill a
// few bytes where each stands alone.
void add_activations(std::map<std::string, PlannedKernel>& all) {
  std::vector<compiler::Activation> activations;
  for (const char* preset : {"clamped_swiglu", "geglu", "quick_geglu"})
    activations.push_back(compiler::make_activation(preset).value());
  for (const char* formula :
       {"gelu_tanh(gate) * up", "tanh(gate) * up", "exp(min(gate, 2)) * relu(up)", "erf(gate) * up",
        "log(1 + abs(gate)) * up"})
    activations.push_back(compiler::parse_activation(formula).value());
  compiler::Layer layer{.experts = 8,
                        .local_experts = 8,
                        .top_k = 2,
                        .hidden = 2048,
                        .intermediate = 768,
                        .max_tokens = 8192,
                        .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  for (const compiler::Activation& activation : activations)
    for (const bool is_fused : {true, false}) {
      layer.activation = activation;
      layer.fuse_activation = is_fused;
      layer.fuse_activation_transpose = is_fused;
      const auto plan = plan_layer(layer, {});
      EXPECT_TRUE(succeeded(plan));
      if (!plan) continue;
      for (const KernelPlan& kernel : plan->kernels) {
        if (kernel.operation.find("activation") == std::string::npos) continue;
        add_kernel(kernel, plan->target, all);
      }
    }
}

// Row-grouped GEMMs with all kinds of scales, in ordinary and in swapped tiles, these also where
// two CTAs share an SM, and of two sizes also in clusters that share A.
void add_lone_gemms(std::map<std::string, PlannedKernel>& all) {
  using compiler::DType;
  using compiler::GemmAccumulation;
  using compiler::GemmScales;
  struct Kind {
    DType operands;
    GemmScales scales;
    GemmAccumulation accumulation;
  };
  constexpr Kind kKinds[] = {
      {DType::kF8E4M3, GemmScales::kRowBlock, GemmAccumulation::kFp32},
      {DType::kF8E4M3, GemmScales::kTensor, GemmAccumulation::kFp32},
      {DType::kF8E4M3, GemmScales::kTensor, GemmAccumulation::kFast},
      {DType::kF8E4M3, GemmScales::kRowColumn, GemmAccumulation::kFp32},
      {DType::kF8E4M3, GemmScales::kRowColumn, GemmAccumulation::kFast},
      {DType::kBF16, GemmScales::kNone, GemmAccumulation::kFp32},
  };
  struct Size {
    int32_t section_n, k;
    int64_t rows;  // 8 experts: in the mean 512, 2, 24 and 32
    bool shares_a = false;
  };
  constexpr Size kSizes[] = {{2048, 7168, 4096, true}, {1440, 2880, 4096}, {2048, 7168, 16},
                             {1440, 2880, 192},        {2048, 7168, 192},  {2048, 7168, 256, true}};
  const auto add = [&](const compiler::GroupedGemmSpec& spec) {
    add_kernel({.operation = "grouped_gemm", .spec = spec}, {}, all);
  };
  for (const Kind& kind : kKinds) {
    for (const Size& size : kSizes) {
      const auto kernel = compiler::plan_grouped_gemm({.operands = kind.operands,
                                                       .scales = kind.scales,
                                                       .accumulation = kind.accumulation,
                                                       .local_experts = 8,
                                                       .sections = 2,
                                                       .section_n = size.section_n,
                                                       .k = size.k},
                                                      size.rows);
      ASSERT_TRUE(succeeded(kernel));
      const auto& spec = std::get<compiler::GroupedGemmSpec>(kernel->spec);
      add(spec);
      if (size.shares_a && spec.ctas_per_sm == 1) add(with_shared_a(spec));
      if (may_share_sm(spec)) add(with_shared_sm(spec));
    }
  }
}

}  // namespace

std::map<std::string, PlannedKernel> planned_kernels() {
  auto all = kernels();
  add_gradients(all);
  add_route_maps(all);
  add_chains(all);
  add_lone_gemms(all);
  add_activation_gradients(all);
  add_some_gradients(all);
  add_activations(all);
  add_transposes(all);
  add_casts_of_values(all);
  add_routers(all);
  add_cast_transposes(all);
  for (auto& [entry, kernel] : all)
    kernel.source = with_launch_asserted(std::move(kernel.source), launch_shape(kernel.spec));
  return all;
}

}  // namespace moejit::testing
