// SPDX-License-Identifier: Apache-2.0
// Whole training steps on a device, every tensor of the backward pass against the CPU reference, as
// layer_test.cpp does for the forward pass.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <gtest/gtest.h>
#include <tuple>

namespace moejit::testing {
namespace {

using compiler::Dispatch;
using compiler::Pass;
using compiler::Recompute;
using reference::LayerInputs;
using reference::LayerShape;

std::vector<uint16_t> gradient_of(const LayerInputs& inputs, const LayerShape& shape) {
  return reference::random_activations(inputs.tokens, shape.hidden, 77);
}

class BackwardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }

  void make(const LayerShape& shape, const LayerInputs& inputs, TestLayer::Options options) {
    // Unless a test asks for more, a layer is for as many tokens as there are: then it gathers the
    // rows of tokens in most cases.
    options.max_tokens = std::max({int64_t{1}, options.max_tokens, inputs.tokens});
    options.has_backward = true;
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    dy_ = gradient_of(inputs, shape);
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
  }
  void backward(GradientMode mode) {
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->backward(mode)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  std::vector<std::vector<std::byte>> gradients() {
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name : {"dx", "dprobs", "dw1", "dw2"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }

  std::unique_ptr<TestLayer> layer_;
  std::vector<uint16_t> dy_;
};

// A case, what is dispatched, what the backward pass makes again, and whether it fuses transposes.
using CaseParam = std::tuple<std::string, Dispatch, Recompute, bool>;
class BackwardCases : public BackwardTest, public ::testing::WithParamInterface<CaseParam> {};

TEST_P(BackwardCases, MatchTheReferenceInEveryTensor) {
  const auto& [name, dispatch, recompute, fuses] = GetParam();
  auto edge = edge_case(name);
  ASSERT_TRUE(edge);
  ASSERT_NO_FATAL_FAILURE(make(edge->shape, edge->inputs,
                               {.dispatch = dispatch,
                                .fuse_transpose = fuses,
                                .fuse_activation_transpose = fuses,
                                .recompute = recompute}));
  ASSERT_TRUE(succeeded(layer_->set_weight_gradients(3.0F)));  // overwritten
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  expect_reference(*layer_, edge->inputs, dy_, {Pass::kBackward});
}

std::string name_of(const ::testing::TestParamInfo<CaseParam>& test) {
  return std::get<0>(test.param) +
         (std::get<1>(test.param) == Dispatch::kNone ? "" : "_dispatched") +
         (std::get<2>(test.param) == Recompute::kNone ? "" : "_recomputed") +
         (std::get<3>(test.param) ? "" : "_apart");
}

INSTANTIATE_TEST_SUITE_P(EdgeCases, BackwardCases,
                         ::testing::Combine(::testing::ValuesIn(edge_case_names()),
                                            ::testing::Values(Dispatch::kNone),
                                            ::testing::Values(Recompute::kNone),
                                            ::testing::Values(true)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Variants, BackwardCases,
    ::testing::Combine(::testing::Values("rows_129", "alignment_16",
                                         "experts_7_hidden_16_intermediate_272"),
                       ::testing::Values(Dispatch::kNone, Dispatch::kFp8),
                       ::testing::Values(Recompute::kMoeExpert), ::testing::Values(true)),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Apart, BackwardCases,
    ::testing::Combine(::testing::Values("rows_129", "alignment_16",
                                         "experts_7_hidden_16_intermediate_272"),
                       ::testing::Values(Dispatch::kNone), ::testing::Values(Recompute::kNone),
                       ::testing::Values(false)),
    name_of);

constexpr LayerShape kShape{.experts = 4,
                            .top_k = 2,
                            .hidden = 272,
                            .intermediate = 144,
                            .alignment = 128,
                            .max_rows = 1024};

// Rows of more than four tiles, which the gathered transposes move in bands.
TEST_F(BackwardTest, TakesFewerTokensThanAtMost) {
  constexpr LayerShape kWide{.experts = 4,
                             .top_k = 2,
                             .hidden = 656,
                             .intermediate = 144,
                             .alignment = 16,
                             .max_rows = 4096};
  for (const int64_t tokens : {int64_t{1}, int64_t{70}, int64_t{150}}) {
    SCOPED_TRACE(tokens);
    const LayerInputs inputs = reference::random_inputs(kWide, tokens, 5);
    ASSERT_NO_FATAL_FAILURE(make(kWide, inputs, {.max_tokens = 512}));
    ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
    expect_reference(*layer_, inputs, dy_, {Pass::kBackward});
  }
}

TEST_F(BackwardTest, AddsExactlyWhatItWouldWrite) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 5);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {}));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  const std::vector<float> dw1 = layer_->read<float>("dw1"), dw2 = layer_->read<float>("dw2");
  constexpr float kOld = 0.75F;
  ASSERT_TRUE(succeeded(layer_->set_weight_gradients(kOld)));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kAdd));
  const auto with_old = [](std::vector<float> values) {
    for (float& value : values) value += kOld;
    return values;
  };
  EXPECT_TRUE(matches(compare_f32({"dw1", 272}, layer_->read<float>("dw1"), with_old(dw1))));
  EXPECT_TRUE(matches(compare_f32({"dw2", 144}, layer_->read<float>("dw2"), with_old(dw2))));
}

TEST_F(BackwardTest, GivesTheSameBitsAgainAndWithRecomputation) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 6);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {}));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  const auto wanted = gradients();
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  EXPECT_EQ(gradients(), wanted);
  for (const bool keeps : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(
        make(kShape, inputs, {.keep_intermediates = keeps, .recompute = Recompute::kMoeExpert}));
    ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
    EXPECT_EQ(gradients(), wanted);
  }
}

TEST_F(BackwardTest, GivesTheSameBitsWhateverItFuses) {
  LayerInputs inputs = reference::random_inputs(kShape, 96, 10);
  inputs.topk_probs[3] = 0.0F;  // a row of zeros, whose gradient is not
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
    std::vector<std::vector<std::vector<std::byte>>> of;
    for (const bool gathers : {true, false}) {
      for (const bool fuses_activation : {true, false}) {
        ASSERT_NO_FATAL_FAILURE(make(kShape, inputs,
                                     {.keep_intermediates = false,
                                      .fuse_transpose = gathers,
                                      .fuse_activation_transpose = fuses_activation,
                                      .recompute = recompute}));
        EXPECT_EQ(find_tensor(layer_->plan(), "row_tokens") != nullptr, gathers);
        EXPECT_EQ(find_tensor(layer_->plan(), "act_q")->role == compiler::TensorRole::kSaved,
                  !fuses_activation && recompute == Recompute::kNone);
        ASSERT_TRUE(succeeded(layer_->poison()));
        ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
        of.push_back(gradients());
      }
    }
    for (const auto& others : of) EXPECT_EQ(others, of[0]);
  }
}

// Kept intermediates do not share memory; without them everything that can does.
TEST_F(BackwardTest, GivesTheSameBitsInSharedWorkspace) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 7);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {}));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  const auto wanted = gradients();
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.keep_intermediates = false}));
  ASSERT_TRUE(succeeded(layer_->poison()));  // forward's workspace is nobody's any more
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  EXPECT_EQ(gradients(), wanted);
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
}

// Against the gradients of the layer without quantization. e4m3 has 3 bits behind the point: a
// value is off by 2^-4 / sqrt(3) * sqrt(1 / 2) = 2.6 % of itself in the mean square, a product of
// two quantized matrices by sqrt(2) times as much, 3.6 %. On the way to dw1 lie dact (3.6 %), gate
// and up (3.6 % each, and the derivative of silu doubles that of gate where it is large), dh1 and x
// (2.6 % each): sqrt(3.6^2 + 3.6^2 + 7.2^2 + 2 * 2.6^2) = 9.6 %, a cosine of 1 - 0.096^2 / 2.
TEST_F(BackwardTest, PointsWhereTheUnquantizedGradientsPoint) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 8);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {}));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kOverwrite));
  const reference::UnquantizedGradients wanted =
      reference::unquantized_backward(kShape, inputs, dy_);
  const auto doubles = [&](std::string_view name) {
    const std::vector<float> values = layer_->read<float>(name);
    return std::vector<double>(values.begin(), values.end());
  };
  std::vector<double> dx;
  for (const uint16_t bits : layer_->read<uint16_t>("dx"))
    dx.push_back(reference::float_from_bf16(bits));
  EXPECT_GE(cosine_similarity(dx, wanted.dx), 0.995);
  EXPECT_GE(cosine_similarity(doubles("dw1"), wanted.dw1), 0.995);
  EXPECT_GE(cosine_similarity(doubles("dw2"), wanted.dw2), 0.995);
  EXPECT_GE(cosine_similarity(doubles("dprobs"), wanted.dprobs), 0.995);
}

TEST_F(BackwardTest, IsRefusedWithoutTheBackwardPass) {
  LayerShape shape = kShape;  // with this alignment and these tokens it is one of layer_test.cpp
  shape.alignment = 16;
  const LayerInputs inputs = reference::random_inputs(shape, 8, 9);
  auto layer = TestLayer::create(shape, {.max_tokens = 192});
  ASSERT_TRUE(succeeded(layer));
  ASSERT_TRUE(succeeded((*layer)->set_inputs(inputs)));
  const auto result = (*layer)->backward(GradientMode::kOverwrite);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moejit::testing
