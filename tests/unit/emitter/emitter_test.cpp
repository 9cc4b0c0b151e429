// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"

#include "templates/embedded_templates.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace moejit::compiler {
namespace {

using testing::succeeded;

// Each kind of kernel, and row chains of every stage.
std::vector<KernelPlan> kernels() {
  const RowChainSpec rows{.columns = 272, .local_experts = 7, .top_k = 2, .epsilon = 1e-10f};
  RowChainSpec kept = rows;
  kept.load = LoadStage::kQuantizedRows;
  kept.quantize = QuantizeStage::kKeep;
  kept.store = StoreStage::kPermuted;
  RowChainSpec in_bursts = kept;
  in_bursts.rows_per_burst = 48;
  RowChainSpec gated = rows;
  gated.load = LoadStage::kGatedRows;
  gated.transform = TransformStage::kActivationProbability;
  gated.store = StoreStage::kGroupedRows;
  RowChainSpec rounded = gated;
  rounded.quantize = QuantizeStage::k1x128Rounded;
  RowChainSpec backward = gated;
  backward.load = LoadStage::kGatedGradientRows;
  backward.transform = TransformStage::kActivationBackward;
  backward.quantize = QuantizeStage::k1x128Pairs;
  backward.store = StoreStage::kGroupedGatedRows;
  RowChainSpec combined = rows;
  combined.load = LoadStage::kCombinedRows;
  combined.quantize = QuantizeStage::kNone;
  RowChainSpec combined_probs = combined;
  combined_probs.store = StoreStage::kRowsAndProbs;
  combined_probs.dprobs_columns = 2;
  RowChainSpec bf16_dprobs = combined_probs, bf16_probs = kept;
  bf16_dprobs.probs = bf16_probs.probs = DType::kBF16;
  const GroupedGemmSpec fused{.epilogue = GemmEpilogue::kActivationQuantize,
                              .local_experts = 7,
                              .sections = 2,
                              .section_n = 144,
                              .k = 272,
                              .narrow_tiles = 2,
                              .epsilon = 1e-10f};
  GroupedGemmSpec fused_kept = fused;
  fused_kept.epilogue = GemmEpilogue::kStoreAndActivationQuantize;
  return {
      {.operation = "route",
       .spec = RouteSpec{.local_experts = 7, .top_k = 2, .splits_alignment = 16, .warps = 4}},
      {.operation = "quantize", .spec = rows},
      {.operation = "permute_pad", .spec = kept},
      {.operation = "activation_quantize", .spec = gated},
      {.operation = "unpermute", .spec = combined},
      {.operation = "quantize_w1",
       .spec = TileChainSpec{.sections = 2, .section_rows = 144, .columns = 272}},
      {.operation = "gemm_fc1",
       .spec =
           GroupedGemmSpec{
               .local_experts = 7, .sections = 2, .section_n = 144, .k = 272, .wide_tiles = 1}},
      {.operation = "gemm_fc2",
       .spec = GroupedGemmSpec{.local_experts = 7,
                               .section_n = 144,
                               .k = 272,
                               .narrow_tiles = 2,
                               .is_swapped = true,
                               .tile_rows = 64}},
      {.operation = "gemm_fc1_activation_quantize", .spec = fused},
      {.operation = "gemm_fc1_activation_quantize", .spec = fused_kept},
      {.operation = "unpermute", .spec = combined_probs},
      {.operation = "quantize_w1",
       .spec =
           TileChainSpec{
               .sections = 2, .section_rows = 144, .columns = 272, .writes_colwise = true}},
      {.operation = "activation_backward_quantize", .spec = backward},
      {.operation = "transpose", .spec = TransposeSpec{.local_experts = 7, .columns = 272}},
      {.operation = "transpose",
       .spec = TransposeSpec{.format = DType::kF8E5M2,
                             .rule = TransposeRule::kForkCompat,
                             .local_experts = 7,
                             .columns = 272,
                             .counts_flushed = true}},
      {.operation = "activation_backward_quantize_transpose",
       .spec = GatedGradientSpec{.local_experts = 7, .columns = 144}},
      {.operation = "activation_backward_quantize_both",
       .spec = GatedGradientSpec{.local_experts = 7, .columns = 144, .casts_columns = true}},
      {.operation = "activation_backward_amax",
       .spec = GatedGradientSpec{.local_experts = 7,
                                 .columns = 144,
                                 .casts_columns = true,
                                 .pass = GradientPass::kAmax}},
      {.operation = "activation_backward_quantize_both",
       .spec = GatedGradientSpec{.local_experts = 7,
                                 .columns = 144,
                                 .stores_rows = false,
                                 .casts_columns = true,
                                 .pass = GradientPass::kCast}},
      {.operation = "scale_columns",
       .spec = GroupColumnsSpec{.local_experts = 7, .columns = 272, .has_amax_rows = true}},
      {.operation = "activation_quantize", .spec = rounded},
      {.operation = "quantize_columns", .spec = ColumnCastSpec{.local_experts = 7, .columns = 272}},
      {.operation = "quantize_permute_transpose",
       .spec = CastTransposeSpec{.local_experts = 7, .columns = 272}},
      {.operation = "scale_columns",
       .spec = GroupColumnsSpec{.local_experts = 7, .columns = 272, .epsilon = 1e-12f}},
      {.operation = "quantize_columns",
       .spec = GroupColumnsSpec{.pass = ColumnPass::kCast,
                                .local_experts = 7,
                                .columns = 272,
                                .sections = 2,
                                .section_rows = 80,
                                .is_interleaved = true}},
      {.operation = "quantize_w1",
       .spec = with_whole_rows({.load = LoadStage::kMatrixRows,
                                .quantize = QuantizeStage::kRow,
                                .columns = 272,
                                .local_experts = 7,
                                .sections = 2,
                                .section_rows = 80,
                                .is_interleaved = true})},
      {.operation = "multi_cast_transpose", .spec = MultiCastTransposeSpec{}},
      {.operation = "multi_cast_transpose",
       .spec = MultiCastTransposeSpec{.input = DType::kF32, .output = DType::kF8E5M2}},
      {.operation = "permute_pad", .spec = in_bursts},
      {.operation = "permute_pad", .spec = bf16_probs},
      {.operation = "unpermute_grad", .spec = bf16_dprobs},
      {.operation = "route",
       .spec = RouteSpec{.local_experts = 7,
                         .top_k = 2,
                         .splits_alignment = 16,
                         .warps = 4,
                         .topk_ids = DType::kI64,
                         .ignores_foreign = true}},
      {.operation = "route_map",
       .spec = RouteMapSpec{.local_experts = 7, .top_k = 2, .splits_alignment = 16, .warps = 4}},
  };
}

KernelSource emitted(const KernelPlan& kernel, const Target& target = {}) {
  const auto source = emit(kernel, target);
  EXPECT_TRUE(succeeded(source));
  return source.value_or(KernelSource{});
}

TEST(Emitter, GivesEqualBytesForEqualSpecsOnEveryTarget) {
  const Target simulator = simulator_target();
  for (const KernelPlan& kernel : kernels()) {
    const KernelSource source = emitted(kernel);
    EXPECT_EQ(source.text, emitted(kernel).text);
    EXPECT_EQ(source.text, emitted(kernel, simulator).text);
  }
}

TEST(Emitter, NamesTheEntryAfterOperationTypesTileAndText) {
  const std::regex pattern(
      "moejit_[a-z0-9_]+_(bf16|e4m3|e5m2|f32|i32|i64|u8)[a-z0-9_]*_[0-9a-f]{8}");
  for (const KernelPlan& kernel : kernels()) {
    const KernelSource source = emitted(kernel);
    EXPECT_TRUE(std::regex_match(source.entry, pattern)) << source.entry;
    EXPECT_TRUE(source.entry.starts_with("moejit_" + kernel.operation + "_")) << source.entry;
    EXPECT_NE(source.text.find(source.entry), std::string::npos);
  }
}

TEST(Emitter, NamesTypesOfTheRoutingOnlyWhereTheyAreNotTheUsualOnes) {
  RouteSpec route{.local_experts = 7, .top_k = 2, .splits_alignment = 16, .warps = 4};
  const auto text = [&] { return emitted({.operation = "route", .spec = route}).text; };
  EXPECT_NE(text().find("Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps>;"),
            std::string::npos);
  route.ignores_foreign = true;
  EXPECT_NE(text().find("kWarps, kHasColwiseOffs, int32_t,"), std::string::npos) << text();
  EXPECT_NE(text().find("kIgnoresForeign>;"), std::string::npos) << text();
  route.ignores_foreign = false;
  route.topk_ids = DType::kI64;
  EXPECT_NE(text().find("kHasColwiseOffs, int64_t>;"), std::string::npos) << text();
  EXPECT_EQ(text().find("kIgnoresForeign"), std::string::npos);
}

TEST(Emitter, SaysHowManyRowsL2IsAskedForAtOnce) {
  RowChainSpec spec{.load = LoadStage::kQuantizedRows,
                    .quantize = QuantizeStage::kKeep,
                    .store = StoreStage::kPermuted,
                    .columns = 272,
                    .local_experts = 7,
                    .top_k = 8};
  const auto text = [&] { return emitted({.operation = "permute_pad", .spec = spec}).text; };
  EXPECT_EQ(text().find("kRowsPerBurst"), std::string::npos);
  spec.rows_per_burst = 48;
  EXPECT_NE(text().find("constexpr int32_t kRowsPerBurst = 48;"), std::string::npos) << text();
  EXPECT_NE(text().find(" kRowsPerBurst>;"), std::string::npos) << text();
}

TEST(Emitter, LeavesRegistersForAsManyThreadsAsTheSkeletonSaysUnlessTheSpecSaysOtherwise) {
  RowChainSpec spec{.columns = 272};
  const auto text = [&] { return emitted({.operation = "quantize", .spec = spec}).text; };
  EXPECT_NE(text().find("MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, "), std::string::npos);
  EXPECT_EQ(text().find("kThreadsPerSm"), std::string::npos);
  spec.threads_per_sm = 1536;
  EXPECT_NE(text().find("constexpr int32_t kThreadsPerSm = 1536;"), std::string::npos) << text();
  EXPECT_NE(text().find("MOEJIT_KERNEL(Kernel::kThreads, kThreadsPerSm / kThreads, "),
            std::string::npos)
      << text();
}

TEST(Emitter, NamesKernelsApartThatDifferInAnyChoice) {
  const GroupedGemmSpec base{
      .local_experts = 7, .sections = 2, .section_n = 144, .k = 272, .wide_tiles = 1};
  std::vector<GroupedGemmSpec> specs(14, base);
  specs[1].local_experts = 8;
  specs[2].sections = 1;
  specs[3].section_n = 160;
  specs[4].k = 288;
  specs[5].stages = 3;
  specs[6].wide_tiles = 2;
  specs[7].narrow_tiles = 1;
  specs[8].blocks_per_promotion = 2;
  specs[9].wide_columns = 256;
  specs[10].is_swapped = true;
  specs[11] = specs[10];
  specs[11].tile_rows = 32;
  specs[12].cluster_ctas = 2;
  specs[13] = specs[12];
  specs[13].shares_a = true;
  std::set<std::string> names;
  for (const GroupedGemmSpec& spec : specs) {
    names.insert(emitted({.operation = "gemm_fc1", .spec = spec}).entry);
  }
  EXPECT_EQ(names.size(), specs.size());
}

TEST(Emitter, NamesFusedKernelsApartThatDifferInWhatTheyStoreOrInEpsilon) {
  const auto all = kernels();
  KernelPlan other = all[8];
  std::get<GroupedGemmSpec>(other.spec).epsilon = 1e-9f;
  EXPECT_NE(emitted(all[8]).entry, emitted(all[9]).entry);
  EXPECT_NE(emitted(all[8]).entry, emitted(other).entry);
}

TEST(Emitter, NamesEveryStageOfTheActivationsGradient) {
  const auto all = kernels();
  const auto kernel =
      std::ranges::find(all, "activation_backward_quantize", &KernelPlan::operation);
  ASSERT_NE(kernel, all.end());
  const KernelSource source = emitted(*kernel);
  for (const char* word :
       {"LoadGatedGradientRows<kColumns>", "TransformActivationBackward<Activation>",
        "Quantize1x128Pairs<", "StoreGroupedGatedRows<kColumns, kLocalExperts>",
        "load=gated_gradient_rows", "transform=activation_backward", "store=grouped_gated_rows"}) {
    EXPECT_NE(source.text.find(word), std::string::npos) << word << " in\n" << source.text;
  }
}

// The formula as a comment, each function once, numbers as fp32.
TEST(Emitter, WritesTheFormulaOfAnActivation) {
  const auto all = kernels();
  KernelPlan kernel = all[4 - 1];
  ASSERT_EQ(kernel.operation, "activation_quantize");
  auto& spec = std::get<RowChainSpec>(kernel.spec);
  spec.activation = parse_activation("silu(gate) * clamp(up, -7, 0.1) - sigmoid(gate)").value();
  const KernelSource source = emitted(kernel);
  for (const char* word :
       {"// silu(gate) * clamp(up, -7, 0.1) - sigmoid(gate)\nstruct Activation {",
        "static float value(float gate, float up) {", "const float t1 = sigmoid(gate);",
        "ptx::max_or_nan(up, -7.0f)", ", 0.1f)", "transform=activation_probability",
        "activation=expression(silu(gate)*clamp(up,-7,0.1)-sigmoid(gate))"}) {
    EXPECT_NE(source.text.find(word), std::string::npos) << word << " in\n" << source.text;
  }
  const size_t first = source.text.find("= sigmoid(");
  EXPECT_EQ(source.text.find("= sigmoid(", first + 1), std::string::npos) << source.text;
  EXPECT_TRUE(source.entry.starts_with("moejit_activation_quantize_expression_bf16_e4m3_"))
      << source.entry;
}

TEST(Emitter, NamesKernelsApartThatDifferInTheirActivation) {
  for (KernelPlan kernel : kernels()) {
    const KernelSource swiglu = emitted(kernel);
    const Activation other = make_activation("geglu").value();
    const bool has_one = swiglu.entry.find("_swiglu_") != std::string::npos;
    if (auto* rows = std::get_if<RowChainSpec>(&kernel.spec)) rows->activation = other;
    if (auto* gemm = std::get_if<GroupedGemmSpec>(&kernel.spec)) gemm->activation = other;
    if (auto* tiles = std::get_if<GatedGradientSpec>(&kernel.spec)) tiles->activation = other;
    const KernelSource changed = emitted(kernel);
    EXPECT_EQ(has_one, kernel.operation.find("activation") != std::string::npos);
    EXPECT_EQ(changed.text != swiglu.text, has_one) << kernel.operation;
    EXPECT_EQ(changed.entry.find("_geglu_") != std::string::npos, has_one);
  }
}

TEST(Emitter, IncludesOnlyEmbeddedHeaders) {
  for (const KernelPlan& kernel : kernels()) {
    const KernelSource source = emitted(kernel);
    EXPECT_EQ(source.text.find("#include <"), std::string::npos);
    for (const Architecture& known : architectures())
      EXPECT_TRUE(
          succeeded(templates::include_closure(source.text, header_overlays(known.target))));
    EXPECT_TRUE(
        succeeded(templates::include_closure(source.text, header_overlays(simulator_target()))));
  }
}

TEST(Emitter, WritesTheBitsOfAnEpsilon) {
  const KernelSource source = emitted(kernels()[1]);
  EXPECT_NE(source.text.find("kEpsilonBits = 0x2edbe6ffu;"), std::string::npos) << source.text;
}

TEST(Emitter, RefusesAnOperationThatIsNoIdentifier) {
  KernelPlan kernel = kernels()[0];
  for (const char* name : {"", "Route", "a b", "x;y", "a\n"}) {
    kernel.operation = name;
    const auto source = emit(kernel, {});
    ASSERT_FALSE(source.has_value()) << name;
    EXPECT_EQ(source.error().code, ErrorCode::kInternal);
  }
}

TEST(Emitter, ComposesAGemmOfTheScalesThatItHas) {
  const auto text_of = [](const GroupedGemmSpec& kind) {
    GroupedGemmSpec spec = kind;
    spec.local_experts = 7;
    spec.section_n = 144;
    spec.k = 272;
    spec.wide_tiles = spec.is_swapped ? 0 : 1;
    spec.narrow_tiles = spec.is_swapped ? 2 : 0;
    return emitted({.operation = "grouped_gemm", .spec = spec}).text;
  };
  const auto expect_parts = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << text;
  };
  expect_parts(text_of({.scales = GemmScales::kTensor}),
               {"PromotingMainloop<MultiplyE4m3, kBlocksPerPromotion>", "NoScales",
                "EpilogueScaled<TensorFactors, EpilogueStoreBf16<Problem>>"});
  expect_parts(text_of({.scales = GemmScales::kRowColumn, .accumulation = GemmAccumulation::kFast}),
               {"AccumulatingMainloop<MultiplyE4m3>", "EpilogueScaled<RowColumnFactors<Problem>,"});
  expect_parts(text_of({.scales = GemmScales::kRowColumn, .is_swapped = true, .tile_rows = 64}),
               {"SwappedRowColumnFactors<Problem>", "SwappedEpilogueStoreBf16<Problem>"});
  const std::string none = text_of({.operands = DType::kBF16, .scales = GemmScales::kNone});
  expect_parts(none, {"AccumulatingMainloop<MultiplyBf16<ptx::Major::kK, ptx::Major::kK>>",
                      "kStepElements = 64"});
  EXPECT_EQ(none.find("kBlocksPerPromotion"), std::string::npos) << none;
  EXPECT_EQ(none.find("EpilogueScaled"), std::string::npos) << none;
}

}  // namespace
}  // namespace moejit::compiler
