// SPDX-License-Identifier: Apache-2.0
// Layers whose scales follow from the steps before: every tensor against the CPU reference as in
// layer_test.cpp and backward_test.cpp, and the state over many steps against the rule of
// runtime/reference/scales.h, bit for bit.
#include "runtime/reference/activation.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/scales.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>

namespace moejit::testing {
namespace {

using compiler::Pass;
using compiler::Recipe;
using compiler::Recompute;
using reference::LayerInputs;
using reference::LayerShape;
using reference::ScaleState;

constexpr int64_t kMaxTokens = 192;
constexpr LayerShape kShape{
    .experts = 4, .top_k = 2, .hidden = 272, .intermediate = 144, .alignment = 16, .max_rows = 640};
constexpr std::string_view kScales[] = {"fc1_scale", "fc2_scale", "fc1_grad_scale",
                                        "fc2_grad_scale"};

std::string history_of(std::string_view scale) {
  return fmt::format("{}_amax_history", scale.substr(0, scale.size() - 6));
}

class DelayedScalingLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }

  // Makes a layer with its weights, and runs its forward pass.
  void make(const LayerShape& shape, const LayerInputs& inputs, TestLayer::Options options) {
    options.max_tokens = std::max(kMaxTokens, inputs.tokens);
    if (!options.recipe.has_history) options.recipe = Recipe::kFp8Delayed;
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    if (!options.has_backward) return;
    dy_ = reference::random_activations(inputs.tokens, shape.hidden, 77);
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->set_weight_gradients(3.0F)));
  }
  void backward() {
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  std::vector<std::vector<std::byte>> gradients() {
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name : {"dx", "dprobs", "dw1", "dw2"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }
  ScaleState state(std::string_view scale) {
    ScaleState state{.amax_history = layer_->read<float>(history_of(scale)),
                     .scale = layer_->read<float>(scale)};
    state.columns = std::ssize(state.scale);
    return state;
  }

  std::unique_ptr<TestLayer> layer_;
  std::vector<uint16_t> dy_;
};

class DelayedScalingCases : public DelayedScalingLayer,
                            public ::testing::WithParamInterface<std::string> {};

TEST_P(DelayedScalingCases, MatchTheReferenceInEveryTensorOfBothPasses) {
  auto edge = edge_case(GetParam());
  ASSERT_TRUE(edge);
  ASSERT_NO_FATAL_FAILURE(
      make(edge->shape, edge->inputs, {.has_backward = true, .amax_history_len = 5}));
  ASSERT_NO_FATAL_FAILURE(backward());
  expect_reference(*layer_, edge->inputs, dy_);
}

INSTANTIATE_TEST_SUITE_P(EdgeCases, DelayedScalingCases,
                         ::testing::Values("no_tokens", "one_token", "two_empty_experts",
                                           "zero_probability", "bad_ids", "row_overflow",
                                           "special_values", "special_weights", "experts_160",
                                           "top_all", "experts_1_hidden_128_intermediate_16"),
                         [](const auto& test) { return test.param; });

TEST_F(DelayedScalingLayer, IsComparedInEveryTensor) {
  const LayerInputs inputs = reference::random_inputs(kShape, 80, 8);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  EXPECT_EQ(unseen_damage(*layer_, inputs, dy_, {Pass::kForward, Pass::kBackward}),
            std::vector<std::string>{});
}

TEST_F(DelayedScalingLayer, MatchesTheReferenceInOtherFormatsAndLayouts) {
  LayerShape shape = kShape;
  shape.is_interleaved = true;
  Recipe e4m3 = Recipe::kFp8Delayed;
  e4m3.gradients = compiler::kExpertE4m3;
  LayerInputs inputs = reference::random_inputs(shape, 96, 7);
  ASSERT_NO_FATAL_FAILURE(make(shape, inputs,
                               {.has_backward = true,
                                .wgrad_dtype = compiler::WgradDtype::kBf16,
                                .recipe = e4m3,
                                .gate_up_layout = compiler::GateUpLayout::kInterleaved,
                                .topk_probs_dtype = compiler::TopkProbsDtype::kBf16}));
  ASSERT_NO_FATAL_FAILURE(backward());
  for (float& prob : inputs.topk_probs)
    prob = reference::float_from_bf16(reference::bf16_from_float(prob));
  expect_reference(*layer_, inputs, dy_);
}

TEST_F(DelayedScalingLayer, ComputesSomeGradientsAlone) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 9);
  using enum compiler::Gradient;
  for (const std::vector<compiler::Gradient>& some :
       {std::vector{kDx}, std::vector{kDprobs}, std::vector{kDw1}, std::vector{kDw2, kDprobs}}) {
    ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true, .gradients = some}));
    ASSERT_NO_FATAL_FAILURE(backward());
    expect_reference(*layer_, inputs, dy_);
  }
}

// The scales of the next step are there before backward runs. It has to use those of its forward
// pass, and to record no magnitude of it again.
TEST_F(DelayedScalingLayer, BackwardUsesTheScalesOfItsForwardPass) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 6);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const auto wanted = gradients();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert})
    for (const bool halves : {false, true}) {
      ASSERT_NO_FATAL_FAILURE(make(kShape, inputs,
                                   {.keep_intermediates = false,
                                    .has_backward = true,
                                    .recompute = recompute,
                                    .backward_halves = halves}));
      const std::vector<float> scales = layer_->read<float>("fc2_scale");
      ASSERT_TRUE(succeeded(layer_->update_scales(Pass::kForward)));
      const ScaleState fc1 = state("fc1_scale"), fc2 = state("fc2_scale");
      EXPECT_NE(fc2.scale, scales);
      ASSERT_TRUE(succeeded(layer_->poison()));  // forward's workspace is nobody's any more
      if (halves) {
        ASSERT_TRUE(succeeded(layer_->backward_data()));
        ASSERT_TRUE(succeeded(layer_->backward_weights(GradientMode::kOverwrite)));
        ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
      } else {
        ASSERT_NO_FATAL_FAILURE(backward());
      }
      EXPECT_EQ(gradients(), wanted);
      EXPECT_EQ(state("fc1_scale").amax_history, fc1.amax_history);
      EXPECT_EQ(state("fc2_scale").amax_history, fc2.amax_history);
      EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
    }
}

// Every rule of an update at once, in histories that warps share and in columns of several CTAs:
// columns of nothing, of infinity, of magnitudes so small that the scale overflows.
TEST_F(DelayedScalingLayer, UpdatesTheScalesOfManyExpertsAndSteps) {
  LayerShape shape = kShape;
  shape.experts = 23;
  shape.max_rows = 1024;
  const LayerInputs inputs = reference::random_inputs(shape, 16, 4);
  for (const int32_t length : {1, 2, 9, 300, 1024})
    for (const auto algorithm :
         {compiler::AmaxComputeAlgo::kMax, compiler::AmaxComputeAlgo::kMostRecent}) {
      ASSERT_NO_FATAL_FAILURE(make(shape, inputs,
                                   {.has_backward = true,
                                    .margin = length % 3,
                                    .amax_history_len = length,
                                    .amax_compute_algo = algorithm}));
      const float smaller = std::ldexp(1.0F, -(length % 3));
      const bool is_most_recent = algorithm == compiler::AmaxComputeAlgo::kMostRecent;
      for (const std::string_view scale : kScales) {
        const bool is_gradient = scale.find("_grad_") != std::string_view::npos;
        ScaleState wanted = state(scale);
        for (int64_t column = 0; column < wanted.columns; ++column) {
          constexpr float kRecorded[] = {0.0F,   3.25F, std::numeric_limits<float>::infinity(),
                                         1e-40F, 17.0F, 1e38F};
          wanted.amax_history[static_cast<size_t>(column)] = kRecorded[column % 6];
        }
        const auto rows = static_cast<int64_t>(length);
        ASSERT_TRUE(succeeded(layer_->set_states(
            {{history_of(scale), runtime::make_tensor(compiler::DType::kF32, {rows, wanted.columns},
                                                      wanted.amax_history)}})));
        ASSERT_TRUE(
            succeeded(layer_->update_scales(is_gradient ? Pass::kBackward : Pass::kForward)));
        reference::update_scales(wanted, {.largest = (is_gradient ? 57344.0F : 448.0F) * smaller,
                                          .is_most_recent = is_most_recent});
        const ScaleState got = state(scale);
        EXPECT_EQ(got.amax_history, wanted.amax_history) << scale << " " << length;
        EXPECT_EQ(got.scale, wanted.scale) << scale << " " << length;
      }
      EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
    }
}

// Training steps of some micro-batches, beside a model of the state on the CPU. The model takes
// magnitudes of x, dy and the weights from the inputs; of act and dh1, which are computed, it takes
// what the layer recorded, once that is near enough to what they are.
class DelayedScalingSteps : public DelayedScalingLayer {
 protected:
  static constexpr int64_t kTokens = 40;
  static constexpr int32_t kLength = 4;

  void start(TestLayer::Options options) {
    options.has_backward = true;
    options.amax_history_len = kLength;
    options.max_tokens = kMaxTokens;
    options.recipe = Recipe::kFp8Delayed;
    auto layer = TestLayer::create(kShape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    runtime::TensorMap first;
    for (const std::string_view scale : kScales) {
      const bool is_gradient = scale.find("_grad_") != std::string_view::npos;
      ScaleState& model = model_[std::string(scale)];
      model.columns = (is_gradient ? 2 : 3) * kShape.experts;
      model.scale.assign(static_cast<size_t>(model.columns), 1.0F);
      model.amax_history.assign(static_cast<size_t>(model.columns * kLength), 0.0F);
      first[std::string(scale)] =
          runtime::make_tensor(compiler::DType::kF32, {model.columns}, model.scale);
      first[history_of(scale)] =
          runtime::make_tensor(compiler::DType::kF32, {kLength, model.columns}, model.amax_history);
    }
    ASSERT_TRUE(succeeded(layer_->set_states(first)));
  }

  // Casts the weights, or leaves that out by a word on the device.
  void weights(const LayerInputs& inputs, bool is_skipped) {
    const std::vector<float> before = layer_->read<float>("w1_scale_inv");
    const uint32_t skip = is_skipped ? 1 : 0;
    ASSERT_TRUE(succeeded(layer_->set_optional("skip_update", &skip, sizeof(skip))));
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    if (is_skipped) {
      EXPECT_EQ(layer_->read<float>("w1_scale_inv"), before);
      return;
    }
    expect_scales("w1", "fc1_scale", 3, 1);
    expect_scales("w2", "fc2_scale", 3, 1);
    const auto experts = static_cast<size_t>(kShape.experts);
    for (size_t e = 0; e < experts; ++e) {
      const auto matrix = [&](const std::vector<uint16_t>& all) {
        return std::span(all).subspan(e * all.size() / experts, all.size() / experts);
      };
      const auto column = static_cast<int64_t>(3 * e + 1);
      record_amax(model_["fc1_scale"], column, reference::amax_of_bf16(matrix(inputs.w1)));
      record_amax(model_["fc2_scale"], column, reference::amax_of_bf16(matrix(inputs.w2)));
    }
  }

  // Expects the scales that a cast has used to be those of the model, and their inverses too.
  void expect_scales(const std::string& name, const std::string& scale, int64_t stride,
                     int64_t first) {
    const std::vector<float> scales = layer_->read<float>(name + "_scale"),
                             inverses = layer_->read<float>(name + "_scale_inv");
    for (int64_t e = 0; e < kShape.experts; ++e) {
      const float wanted = model_[scale].scale[static_cast<size_t>(stride * e + first)];
      EXPECT_EQ(scales[static_cast<size_t>(e)], wanted) << name << " " << e;
      EXPECT_EQ(inverses[static_cast<size_t>(e)], 1.0F / wanted) << name << " " << e;
    }
  }

  // Runs a forward and a backward pass.
  void micro_batch(const LayerInputs& inputs, const std::vector<uint16_t>& dy) {
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy)));
    ASSERT_NO_FATAL_FAILURE(backward());
    expect_scales("permuted", "fc1_scale", 3, 0);
    expect_scales("act", "fc2_scale", 3, 0);
    expect_scales("dh1", "fc1_grad_scale", 2, 0);
    expect_scales("grad_permuted", "fc2_grad_scale", 2, 0);
    for (size_t i = 0; i < inputs.topk_ids.size(); ++i) {
      if (inputs.topk_ids[i] < 0) continue;
      const auto row = [&](const std::vector<uint16_t>& rows) {
        const auto columns = static_cast<size_t>(kShape.hidden);
        return std::span(rows).subspan(i / static_cast<size_t>(kShape.top_k) * columns, columns);
      };
      const int64_t expert = inputs.topk_ids[i];
      if (inputs.topk_probs[i] != 0.0F)
        record_amax(model_["fc1_scale"], 3 * expert, reference::amax_of_bf16(row(inputs.x)));
      record_amax(model_["fc2_grad_scale"], 2 * expert, reference::amax_of_bf16(row(dy)));
    }
    record_computed("fc2_scale", 3, "act_q", "act_scale_inv");
    record_computed("fc1_grad_scale", 2, "dh1_q", "dh1_scale_inv");
  }

  // Takes over what a cast has recorded of computed values, once it is near enough to the largest
  // code: a code is off by an eighth of itself at most.
  void record_computed(const std::string& scale, int64_t stride, std::string_view codes_name,
                       std::string_view inverse_name) {
    const std::vector<float> recorded = state(scale).amax_history;
    const std::vector<uint8_t> codes = layer_->read<uint8_t>(codes_name);
    const std::vector<float> inverses = layer_->read<float>(inverse_name);
    const std::vector<int32_t> counts = layer_->read<int32_t>("counts"),
                               offs = layer_->read<int32_t>("offs");
    const bool is_e5m2 = codes_name == "dh1_q";
    const auto format = is_e5m2 ? reference::Fp8Format::kE5m2 : reference::Fp8Format::kE4m3;
    const float largest = is_e5m2 ? 57344.0F : 448.0F;
    const size_t columns = codes.size() / layer_->read<float>("permuted_probs").size();
    for (size_t e = 0; e < counts.size(); ++e) {
      float code = 0.0F;
      for (size_t i = static_cast<size_t>(offs[e]) * columns;
           i < static_cast<size_t>(offs[e] + counts[e]) * columns; ++i) {
        const float value = std::fabs(reference::decode_fp8(codes[i], format));
        if (value > code) code = value;
      }
      const auto column = static_cast<size_t>(stride) * e;
      const float amax = recorded[column];
      EXPECT_GE(amax, model_[scale].amax_history[column]) << scale << " " << e;
      EXPECT_GE(amax, 0.875F * code * inverses[e]) << scale << " " << e;
      // What saturates may be anything.
      const float old = model_[scale].amax_history[column];
      if (code < largest) {
        EXPECT_LE(amax, std::max(old, 1.15F * code * inverses[e] + 1e-6F)) << scale << " " << e;
      }
      record_amax(model_[scale], static_cast<int64_t>(column), amax);
    }
  }

  void end_step() {
    for (const std::string_view scale : kScales) {
      const ScaleState got = state(scale);
      EXPECT_EQ(got.amax_history, model_[std::string(scale)].amax_history) << scale;
    }
    ASSERT_TRUE(succeeded(layer_->update_scales(Pass::kForward)));
    ASSERT_TRUE(succeeded(layer_->update_scales(Pass::kBackward)));
    for (const std::string_view scale : kScales) {
      ScaleState& model = model_[std::string(scale)];
      const bool is_gradient = scale.find("_grad_") != std::string_view::npos;
      reference::update_scales(model, {.largest = is_gradient ? 57344.0F : 448.0F});
      const ScaleState got = state(scale);
      EXPECT_EQ(got.amax_history, model.amax_history) << scale;
      EXPECT_EQ(got.scale, model.scale) << scale;
    }
  }

  std::map<std::string, ScaleState> model_;
};

TEST_F(DelayedScalingSteps, FollowTheRuleThroughInfinitiesNansAndZeros) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  for (uint64_t step = 0; step < 20; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    LayerInputs inputs = reference::random_inputs(kShape, kTokens, 300 + step);
    std::vector<uint16_t> dy = reference::random_activations(kTokens, kShape.hidden, 400 + step);
    inputs.topk_ids[0] = 1;
    inputs.topk_probs[0] = 0.5F;
    // A large value in a row that no expert gets.
    inputs.topk_probs[2] = inputs.topk_probs[3] = 0.0F;
    inputs.x[static_cast<size_t>(kShape.hidden) + 7] = reference::bf16_from_float(3000.0F);
    const auto first = [&](float value) { inputs.x[3] = reference::bf16_from_float(value); };
    if (step == 5) first(std::numeric_limits<float>::infinity());
    if (step == 8) first(std::numeric_limits<float>::quiet_NaN());
    if (step == 11) dy[5] = reference::bf16_from_float(-std::numeric_limits<float>::infinity());
    if (step == 13) {
      std::ranges::fill(inputs.x, uint16_t{0});
      std::ranges::fill(dy, uint16_t{0});
    }
    // Weights are cast in every other step only, and always in the first one.
    ASSERT_NO_FATAL_FAILURE(weights(inputs, step % 2 == 1));
    for (uint64_t batch = 0; batch <= step % 3; ++batch) {
      ASSERT_NO_FATAL_FAILURE(micro_batch(inputs, dy));
      if (step == 13) break;
      inputs = reference::random_inputs(kShape, kTokens - static_cast<int64_t>(batch), 500 + step);
      dy = reference::random_activations(inputs.tokens, kShape.hidden, 600 + step);
    }
    ASSERT_NO_FATAL_FAILURE(end_step());
    if (HasFailure()) return;
  }
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
}

}  // namespace
}  // namespace moejit::testing
