// SPDX-License-Identifier: Apache-2.0
// Layers with shared experts: the bits of a layer whose tokens choose these experts themselves,
// every tensor of both passes against the CPU reference, and results without any quantization.
#include "runtime/check/check_plan.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/shared.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/trial/trial.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/kernels_ahead.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"
#include "tests/support/test_engine.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::Layer;
using compiler::Recipe;
using compiler::Recompute;
using runtime::TensorMap;

struct Case {
  const char* name;
  Recipe recipe;
  int32_t shared = 1;
  bool gate = true;
  int64_t tokens = 45;
  bool biases = false;
  bool has_bf16_probs = false;
  Recompute recompute = Recompute::kNone;
  std::vector<std::string_view> calls = {"forward", "backward"};
};

// With one shared expert it has the experts, choices and sizes of recipe_rows_test.cpp, so that
// kernels are compiled once for both.
Layer layer_of(const Case& one) {
  const bool has_groups = one.recipe.tokens.scale == compiler::ScaleOf::k1x32;
  Layer layer{.name = one.name,
              .experts = 4 - one.shared % 2,
              .local_experts = 4 - one.shared % 2,
              .top_k = one.shared,
              .shared = {.experts = one.shared, .gate = one.gate},
              .hidden = has_groups ? 288 : 272,
              .intermediate = has_groups ? 160 : 144,
              .biases = one.biases,
              .recipe = one.recipe,
              .splits_alignment = 64,
              .max_tokens = 80};
  if (one.has_bf16_probs) {
    layer.topk_ids_dtype = compiler::IndexDtype::kI64;
    layer.topk_probs_dtype = compiler::TopkProbsDtype::kBf16;
  }
  layer.recompute = one.recompute;
  if (one.calls.size() > 1) layer.passes = {compiler::Pass::kForward, compiler::Pass::kBackward};
  layer.backward_halves = one.calls.size() > 2;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

class SharedExperts : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    inputs_ = trial::random_tokens(layer_, GetParam().tokens, {3});
    inputs_.merge(trial::random_weights_of(layer_, held_experts(layer_), 3));
    if (has_backward(layer_)) inputs_.merge(trial::random_gradient(layer_, GetParam().tokens, 3));
  }

  // Makes all calls, and returns all that they wrote.
  TensorMap run(const Layer& layer, const TensorMap& inputs) {
    const auto plan =
        plan_layer(layer, test_device().device->target(), {.keep_intermediates = true});
    EXPECT_TRUE(succeeded(plan));
    if (!plan || !note_kernels_of(*plan)) return {};
    auto session = trial::Trial::create(*plan, test_engine(), *test_device().device,
                                        trial::call_of(TensorMap(inputs)));
    EXPECT_TRUE(succeeded(session));
    if (!session) return {};
    EXPECT_TRUE(succeeded((*session)->call("update_weights")));
    for (const std::string_view call : GetParam().calls)
      EXPECT_TRUE(succeeded((*session)->call(call)));
    EXPECT_EQ(*(*session)->status(), std::vector<uint32_t>{0});
    auto results = (*session)->results(0, true);
    EXPECT_TRUE(succeeded(results));
    if (layer == layer_) plan_ = *plan;
    return *results;
  }

  reference::SharedShape shape() const {
    return {.rank_experts = layer_.local_experts,
            .top_k = layer_.top_k,
            .shared = layer_.shared.experts};
  }

  // Returns the choices with the shared experts among them.
  reference::AllChoices all_choices() const {
    std::vector<float> shared;
    if (layer_.shared.gate) shared = trial::probabilities(inputs_.at("shared_probs"));
    return append_shared(shape(), 0, trial::expert_ids(inputs_.at("topk_ids")),
                         trial::probabilities(inputs_.at("topk_probs")), shared);
  }

  const Layer layer_ = layer_of(GetParam());
  TensorMap inputs_;
  std::optional<compiler::Plan> plan_;
};

std::vector<float> rounded(std::vector<float> values, bool is_rounded) {
  for (float& value : values)
    if (is_rounded) value = reference::float_from_bf16(reference::bf16_from_float(value));
  return values;
}

TEST_P(SharedExperts, HaveTheBitsOfChosenExperts) {
  const TensorMap got = run(layer_, inputs_);
  const reference::AllChoices all = all_choices();
  const int64_t choices = layer_.top_k + layer_.shared.experts;
  TensorMap chosen = inputs_;
  chosen["topk_ids"] = runtime::make_tensor(DType::kI32, {GetParam().tokens, choices}, all.ids);
  chosen["topk_probs"] = runtime::make_tensor(DType::kF32, {GetParam().tokens, choices}, all.probs);
  chosen.erase("shared_probs");
  const TensorMap wanted = run(with_shared_chosen(layer_), chosen);
  ASSERT_FALSE(HasFailure());
  for (const std::string_view name : {"y", "dx", "dw1", "dw2", "db1", "db2"})
    if (const auto found = wanted.find(name); found != wanted.end()) {
      EXPECT_TRUE(got.find(name)->second.bytes == found->second.bytes) << name;
    }
  if (!has_backward(layer_)) return;
  const auto parted = part_dprobs(shape(), runtime::elements<float>(wanted.find("dprobs")->second));
  const bool is_bf16 = GetParam().has_bf16_probs;
  EXPECT_EQ(trial::probabilities(got.find("dprobs")->second), rounded(parted.dprobs, is_bf16));
  EXPECT_EQ(got.contains("dshared_probs"), layer_.shared.gate);
  if (layer_.shared.gate) {
    EXPECT_EQ(trial::probabilities(got.find("dshared_probs")->second),
              rounded(parted.dshared_probs, is_bf16));
  }
}

TEST_P(SharedExperts, HaveTheTensorsOfTheReference) {
  const TensorMap got = run(layer_, inputs_);
  ASSERT_FALSE(HasFailure());
  std::vector<std::string_view> calls = GetParam().calls;
  calls.emplace_back("update_weights");
  const auto checks = check::check_plan(*plan_, calls, inputs_, got);
  bool has_choices = false;
  for (const check::TensorCheck& check : checks) {
    EXPECT_TRUE(check.has_passed) << check.tensor << ": " << check.verdict << "; " << check.message;
    has_choices |= check.tensor == "all_ids";
  }
  EXPECT_TRUE(has_choices);
}

// The routed experts and, with the token's own probability, each shared one, in fp64.
TEST_P(SharedExperts, AddUpWithRoutedExperts) {
  const TensorMap got = run(layer_, inputs_);
  ASSERT_FALSE(HasFailure());
  if (GetParam().biases) GTEST_SKIP() << "the sums in fp64 have no biases";
  const reference::AllChoices all = all_choices();
  const Layer chosen = with_shared_chosen(layer_);
  const reference::LayerShape wide{.experts = chosen.experts,
                                   .top_k = chosen.top_k,
                                   .hidden = chosen.hidden,
                                   .intermediate = chosen.intermediate,
                                   .alignment = 1,
                                   .max_rows = 1 << 20};
  reference::LayerInputs given{.tokens = GetParam().tokens};
  given.x = runtime::copy_elements<uint16_t>(inputs_.at("x"));
  given.topk_ids = all.ids;
  given.topk_probs = all.probs;
  given.w1 = runtime::copy_elements<uint16_t>(inputs_.at("w1"));
  given.w2 = runtime::copy_elements<uint16_t>(inputs_.at("w2"));
  const std::vector<double> wanted = unquantized_forward(wide, given);
  const auto y = runtime::elements<uint16_t>(got.find("y")->second);
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(reference::float_from_bf16(y[i]) - wanted[i], 2);
    size += std::pow(wanted[i], 2);
  }
  // Three roundings to bf16 of 2^-9, or of FP8 operands of 2^-4, each times 1/sqrt(3) in the mean;
  // nvfp4 rounds by up to 2^-2.
  const double bound = GetParam().recipe == Recipe::kBf16    ? 0.006
                       : GetParam().recipe == Recipe::kNvfp4 ? 0.3
                                                             : 0.09;
  EXPECT_LE(std::sqrt(error), bound * std::sqrt(size));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SharedExperts,
    ::testing::Values(Case{.name = "bf16", .recipe = Recipe::kBf16},
                      Case{.name = "bf16_of_two", .recipe = Recipe::kBf16, .shared = 2},
                      Case{.name = "bf16_halves",
                           .recipe = Recipe::kBf16,
                           .calls = {"forward", "backward_data", "backward_weights"}},
                      Case{.name = "bf16_without_tokens", .recipe = Recipe::kBf16, .tokens = 0},
                      Case{.name = "flow_biases", .recipe = Recipe::kFp8Flow, .biases = true},
                      Case{.name = "flow_plain_forward",
                           .recipe = Recipe::kFp8Flow,
                           .gate = false,
                           .calls = {"forward"}},
                      Case{.name = "blockwise", .recipe = Recipe::kFp8Blockwise},
                      Case{.name = "blockwise_bf16_probs",
                           .recipe = Recipe::kFp8Blockwise,
                           .has_bf16_probs = true},
                      Case{.name = "blockwise_recompute",
                           .recipe = Recipe::kFp8Blockwise,
                           .recompute = Recompute::kMoeExpert},
                      Case{.name = "current", .recipe = Recipe::kFp8Current},
                      Case{.name = "delayed", .recipe = Recipe::kFp8Delayed},
                      Case{.name = "rowwise", .recipe = Recipe::kFp8Rowwise},
                      Case{.name = "mxfp8", .recipe = Recipe::kMxfp8},
                      Case{.name = "nvfp4", .recipe = Recipe::kNvfp4}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace moejit::testing
