// SPDX-License-Identifier: Apache-2.0
// The emitted text of every operation of four layers, of lone GEMMs, of gradients, and of what
// other experts need, compared with the files in sources/. `source_golden_test --update` writes
// them anew; a reader then judges the difference.

#include "compiler/compiler.h"
#include "compiler/planner/grouped_gemm.h"
#include "tests/support/matchers.h"
#include "tests/support/update_main.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

namespace moejit::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kSources = fs::path(MOEJIT_SOURCE_DIR) / "tests/golden/sources";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A slice of DeepSeek-V3 that gets its tokens from other ranks, gpt-oss-20b, whose sizes are no
// multiples of 128, on one rank and with the activation as a kernel of its own, the same for
// decoding, and a training step, also with the scales of experts, of this step and of the steps
// before, and of whole rows and columns.
std::vector<compiler::Layer> layers() {
  compiler::Layer dsv3{.name = "dsv3",
                       .experts = 256,
                       .local_experts = 32,
                       .top_k = 8,
                       .hidden = 7168,
                       .intermediate = 2048,
                       .splits_alignment = 128,
                       .max_tokens = 4096,
                       .dispatch = compiler::Dispatch::kFp8};
  compiler::Layer gpt_oss{.name = "gpt_oss",
                          .experts = 32,
                          .local_experts = 32,
                          .top_k = 4,
                          .hidden = 2880,
                          .intermediate = 2880,
                          .activation = compiler::make_activation("clamped_swiglu").value(),
                          .splits_alignment = 16,
                          .max_tokens = 8192,
                          .fuse_activation = false};
  compiler::Layer decode = gpt_oss;
  decode.name = "gpt_oss_decode";
  decode.max_tokens = 128;
  compiler::Layer training{.name = "training",
                           .experts = 8,
                           .local_experts = 8,
                           .top_k = 8,
                           .hidden = 7168,
                           .intermediate = 2048,
                           .splits_alignment = 16,
                           .max_tokens = 4096,
                           .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  compiler::Layer current = training;
  current.name = "current";
  current.recipe = compiler::Recipe::kFp8Current;
  compiler::Layer delayed = training;
  delayed.name = "delayed";
  delayed.recipe = compiler::Recipe::kFp8Delayed;
  compiler::Layer rowwise = training;
  rowwise.name = "rowwise";
  rowwise.recipe = compiler::Recipe::kFp8Rowwise;
  std::vector<compiler::Layer> all = {dsv3, gpt_oss, decode, training, current, delayed, rowwise};
  for (compiler::Layer& layer : all) layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return all;
}

// Of grouped GEMMs with the scales that no layer has yet; with few rows tiles are swapped.
void add_lone_gemms(std::map<std::string, std::string>& sources) {
  using compiler::DType;
  using compiler::GemmAccumulation;
  using compiler::GemmScales;
  struct Kind {
    std::string_view name;
    DType operands;
    GemmScales scales;
    GemmAccumulation accumulation = GemmAccumulation::kFp32;
    int64_t rows = 65536;
  };
  const Kind kinds[] = {
      {"tensor", DType::kF8E4M3, GemmScales::kTensor},
      {"tensor_fast", DType::kF8E4M3, GemmScales::kTensor, GemmAccumulation::kFast},
      {"row_column", DType::kF8E4M3, GemmScales::kRowColumn},
      {"row_column_decode", DType::kF8E4M3, GemmScales::kRowColumn, GemmAccumulation::kFp32, 512},
      {"none", DType::kBF16, GemmScales::kNone},
  };
  for (const Kind& kind : kinds) {
    const auto kernel = compiler::plan_grouped_gemm({.operands = kind.operands,
                                                     .scales = kind.scales,
                                                     .accumulation = kind.accumulation,
                                                     .local_experts = 32,
                                                     .sections = 2,
                                                     .section_n = 2048,
                                                     .k = 7168},
                                                    kind.rows);
    ASSERT_TRUE(succeeded(kernel));
    const auto source = compiler::emit_kernel(*kernel, compiler::Target{});
    ASSERT_TRUE(succeeded(source));
    sources[fmt::format("grouped_gemm_scales_{}.cu", kind.name)] = source->text;
  }
}

// Lists kernels of weight gradients, one of which CTAs make in clusters. Of those with scales of
// rows, warpgroups halve columns, or, of bf16, rows.
void add_gradients(std::map<std::string, std::string>& sources) {
  using compiler::GradientScales;
  const auto add = [&](const compiler::KernelPlan& kernel, const std::string& name) {
    const auto source = compiler::emit_kernel(kernel, compiler::Target{});
    EXPECT_TRUE(succeeded(source));
    if (source) sources[name + ".cu"] = source->text;
  };
  for (const GradientScales scales : {GradientScales::kTile, GradientScales::kRow,
                                      GradientScales::kTensor, GradientScales::kRowColumn}) {
    const bool is_fast = scales == GradientScales::kRowColumn;
    compiler::KernelPlan kernel = compiler::plan_contraction_grouped_gemm(
                                      {.scales = scales,
                                       .output = compiler::GradientOutput::kF32Add,
                                       .accumulation = is_fast ? compiler::GemmAccumulation::kFast
                                                               : compiler::GemmAccumulation::kFp32,
                                       .is_a_e5m2 = scales == GradientScales::kTensor,
                                       .local_experts = 8,
                                       .rows = 4096,
                                       .n = 7168},
                                      8192)
                                      .value();
    const std::string name = "wgrad_scales_" + std::string(to_string(scales));
    add(kernel, name);
    auto& spec = std::get<compiler::ContractionGroupedGemmSpec>(kernel.spec);
    if (scales == GradientScales::kTile) {
      spec.cluster_ctas = 2;
      add(kernel, name + "_clusters");
    }
    if (scales == GradientScales::kRow) {
      spec.output = compiler::GradientOutput::kBf16;
      spec.panels_loaded = 0;
      add(kernel, name + "_bf16");
    }
  }
}

// Of the transpose that no layer has.
void add_compatible_transpose(std::map<std::string, std::string>& sources) {
  const auto source = compiler::emit_kernel(
      {.operation = "transpose",
       .spec =
           compiler::TransposeSpec{
               .rule = compiler::TransposeRule::kForkCompat, .local_experts = 8, .columns = 7168}},
      compiler::Target{});
  EXPECT_TRUE(succeeded(source));
  if (source) sources["transpose_fork_compat.cu"] = source->text;
}

// Adds the kernel that routes a map, which no layer has.
void add_route_map(std::map<std::string, std::string>& sources) {
  const auto source = compiler::emit_kernel(
      {.operation = "route",
       .spec =
           compiler::RouteMapSpec{
               .local_experts = 64, .top_k = 8, .splits_alignment = 16, .warps = 32}},
      compiler::Target{});
  EXPECT_TRUE(succeeded(source));
  if (source) sources["route_map.cu"] = source->text;
}

// Of the cast that no layer has.
void add_cast_transpose(std::map<std::string, std::string>& sources) {
  const auto source = compiler::emit_kernel(
      {.operation = "multi_cast_transpose", .spec = compiler::MultiCastTransposeSpec{}},
      compiler::Target{});
  EXPECT_TRUE(succeeded(source));
  if (source) sources["multi_cast_transpose.cu"] = source->text;
}

// Emits the casts to codes with E8M0 scales, or with scales on two levels, and their swizzle, that
// operations alone have.
void add_group_casts(std::map<std::string, std::string>& sources) {
  const auto add = [&](std::string_view operation, const compiler::KernelSpec& spec) {
    const auto source = compiler::emit_kernel({.operation = std::string(operation), .spec = spec},
                                              compiler::Target{});
    EXPECT_TRUE(succeeded(source));
    if (source) sources[fmt::format("group_{}.cu", operation)] = source->text;
  };
  add("quantize",
      compiler::RowChainSpec{.quantize = compiler::QuantizeStage::k1x32, .columns = 7168});
  add("quantize_columns",
      compiler::BlockCastSpec{.casts_rows = true, .local_experts = 8, .columns = 7168});
  add("swizzle_scales", compiler::SwizzleScalesSpec{.local_experts = 8, .columns = 7168});
  add("pack_weights",
      compiler::WeightPackSpec{
          .sections = 2, .section_rows = 2880, .columns = 2880, .is_interleaved = true});
  add("pack_nvfp4_weights",
      compiler::WeightPackSpec{
          .section_rows = 2048, .columns = 768, .format = compiler::PackedFormat::kNvfp4});
  add("two_level_quantize",
      compiler::TwoLevelCastSpec{.casts_rows = true, .casts_columns = false, .columns = 7168});
  add("two_level_quantize_columns",
      compiler::TwoLevelCastSpec{.casts_rows = true, .local_experts = 8, .columns = 7168});
  add("two_level_swizzle_scales",
      compiler::SwizzleScalesSpec{
          .of_columns = true, .group = 16, .local_experts = 8, .columns = 7168});
}

// Of experts that are built otherwise, the kernels that differ.
void add_variants(std::map<std::string, std::string>& sources) {
  compiler::Layer layer{.experts = 8,
                        .local_experts = 8,
                        .top_k = 4,
                        .hidden = 2880,
                        .intermediate = 2880,
                        .splits_alignment = 64,
                        .max_tokens = 4096,
                        .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  compiler::Layer up = layer, interleaved = layer, biased = layer;
  up.activation = compiler::make_activation("relu_squared").value();
  interleaved.gate_up_layout = compiler::GateUpLayout::kInterleaved;
  compiler::Layer separate = layer;
  separate.gate_up_layout = compiler::GateUpLayout::kSeparate;
  biased = interleaved;
  biased.biases = true;
  compiler::Layer bf16 = interleaved;
  bf16.recipe = compiler::Recipe::kBf16;
  using enum compiler::Gradient;
  compiler::Layer frozen = layer, router = biased, weights = layer, second = layer;
  frozen.gradients = {kDx};
  router.gradients = {kDprobs};
  weights.gradients = {kDprobs, kDw1, kDw2};
  second.gradients = {kDx, kDw2};
  const auto add = [&](const compiler::Layer& of, std::string_view name,
                       std::initializer_list<std::string_view> operations) {
    const auto plan = compiler::plan_layer(of, compiler::Target{});
    ASSERT_TRUE(succeeded(plan));
    for (const compiler::KernelPlan& kernel : plan->kernels) {
      if (std::ranges::count(operations, kernel.operation) == 0) continue;
      const auto source = compiler::emit_kernel(kernel, plan->target);
      ASSERT_TRUE(succeeded(source));
      sources[fmt::format("{}_{}.cu", name, kernel.operation)] = source->text;
    }
  };
  compiler::Layer routing = layer, foreign = layer;
  routing.topk_ids_dtype = compiler::IndexDtype::kI64;
  routing.topk_probs_dtype = compiler::TopkProbsDtype::kBf16;
  routing.foreign_experts = foreign.foreign_experts = compiler::ForeignExperts::kIgnore;
  compiler::Layer shared = routing;
  shared.shared = {.experts = 2, .gate = true};
  add(shared, "shared", {"shared_choices", "shared_dprobs"});
  compiler::Layer bf16_routing = routing;
  bf16_routing.recipe = compiler::Recipe::kBf16;
  bf16_routing.biases = true;
  add(routing, "routing", {"route", "quantize_permute_pad", "unpermute_grad"});
  add(bf16_routing, "routing_bf16", {"permute_pad", "unpermute_grad"});
  add(foreign, "foreign", {"route"});
  add(up, "relu_squared", {"activation_quantize", "activation_backward_quantize"});
  add(interleaved, "interleaved", {"quantize_w1", "gemm_fc1_wgrad_add"});
  add(separate, "separate", {"quantize_w1", "gemm_fc1_wgrad_add"});
  compiler::Layer separate_bf16 = separate;
  separate_bf16.recipe = compiler::Recipe::kBf16;
  add(separate_bf16, "separate_bf16", {"gemm_fc1", "gemm_fc1_dgrad"});
  add(bf16, "interleaved_bf16", {"activation", "activation_backward"});
  add(frozen, "frozen", {"activation_backward_quantize", "unpermute_dx"});
  add(router, "router", {"activation_dprobs", "unpermute_dprobs"});
  add(weights, "weights", {"activation_backward_quantize_transpose"});
  add(second, "second_weight", {"activation_backward_quantize_transpose"});
  compiler::Layer blockwise = layer, blockwise_up = up, blockwise_second = second;
  for (compiler::Layer* const of : {&blockwise, &blockwise_up, &blockwise_second})
    of->recipe = compiler::Recipe::kFp8Blockwise;
  add(blockwise, "blockwise",
      {"quantize_permute_pad", "activation_quantize", "permute_quantize_columns_x",
       "permute_quantize_columns_grad", "activation_backward_quantize_both"});
  add(blockwise_up, "blockwise_relu_squared",
      {"activation_backward_quantize", "quantize_columns_dh1"});
  add(blockwise_second, "blockwise_second_weight", {"activation_backward_quantize_both"});
  compiler::Layer mx = layer;
  mx.recipe = compiler::Recipe::kMxfp8;
  add(mx, "mxfp8",
      {"quantize_w1", "quantize_permute_pad", "activation_quantize", "permute_quantize_columns_x",
       "quantize_columns_dh1"});
  compiler::Layer nv = layer;
  nv.recipe = compiler::Recipe::kNvfp4;
  add(nv, "nvfp4",
      {"scale_w1", "quantize_w1", "amax_permuted", "scale_permuted", "gemm_fc1",
       "quantize_columns_dh1", "permute_quantize_columns_x", "gemm_fc1_wgrad"});
  add(biased, "biases",
      {"gemm_fc1", "gemm_fc2", "bias_dprobs", "fc2_bias_grad", "fc1_bias_grad_add",
       "unpermute_grad"});
}

// The examples of routers, and one whose score is a formula.
void add_routers(std::map<std::string, std::string>& sources) {
  const auto add = [&](const std::string& name, const std::string& json) {
    const auto plan = compiler::parse_operation(json, name).and_then([](const auto& operation) {
      return compiler::plan_operation(operation, compiler::Target{});
    });
    ASSERT_TRUE(succeeded(plan));
    const auto source = compiler::emit_kernel(plan->kernels.front(), plan->target);
    ASSERT_TRUE(succeeded(source));
    sources[name + ".cu"] = source->text;
  };
  const fs::path examples = fs::path(MOEJIT_SOURCE_DIR) / "docs/examples/operations";
  for (const std::string name : {"router", "router_backward"})
    add("operation_" + name, read_file(examples / (name + ".json")));
  add("expression_router_backward",
      R"({"operation": "router_backward", "max_tokens": 64, "experts": 64, "top_k": 6,
          "router": {"score": {"expression": "tanh(logit) * logit"}, "softcap": 30}})");
}

// File name -> text.
std::map<std::string, std::string> emitted_sources() {
  std::map<std::string, std::string> sources;
  add_variants(sources);
  add_lone_gemms(sources);
  add_gradients(sources);
  add_compatible_transpose(sources);
  add_route_map(sources);
  add_cast_transpose(sources);
  add_group_casts(sources);
  add_routers(sources);
  for (const compiler::Layer& layer : layers()) {
    const auto plan = compiler::plan_layer(layer, compiler::Target{});
    EXPECT_TRUE(succeeded(plan));
    if (!plan) continue;
    for (const compiler::KernelPlan& kernel : plan->kernels) {
      const auto source = compiler::emit_kernel(kernel, plan->target);
      EXPECT_TRUE(succeeded(source));
      if (source) sources[layer.name + "_" + kernel.operation + ".cu"] = source->text;
    }
  }
  return sources;
}

TEST(EmittedSources, AreTheGoldenFiles) {
  for (const auto& [name, text] : emitted_sources()) {
    EXPECT_EQ(read_file(kSources / name), text)
        << name << " differs; after a wanted change run source_golden_test --update";
  }
}

TEST(EmittedSources, AreAllThatTheFolderHolds) {
  const auto sources = emitted_sources();
  for (const auto& file : fs::directory_iterator(kSources)) {
    EXPECT_TRUE(sources.contains(file.path().filename().string())) << file.path();
  }
}

TEST(EmittedSources, AreShortWithLinesThatFitAPage) {
  for (const auto& [name, text] : emitted_sources()) {
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 60) << name;
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      ASSERT_NE(end, std::string_view::npos) << name << " does not end with a newline";
      EXPECT_LE(end, 100u) << name << ": " << rest.substr(0, end);
      rest.remove_prefix(end + 1);
    }
  }
}

void update() {
  for (const auto& file : fs::directory_iterator(kSources)) fs::remove(file);
  for (const auto& [name, text] : emitted_sources()) {
    std::ofstream(kSources / name, std::ios::binary) << text;
  }
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  return moejit::testing::run_tests_or_update(argc, argv, &moejit::testing::update);
}
