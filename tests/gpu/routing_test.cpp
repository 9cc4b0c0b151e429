// SPDX-License-Identifier: Apache-2.0
// Layers that take the routing as frameworks have it: ids of 64 bits, bf16 probabilities, and ids
// of foreign experts, with every tensor of both passes against the CPU reference.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <tuple>

namespace moejit::testing {
namespace {

using compiler::IndexDtype;
using compiler::Recipe;
using compiler::TopkProbsDtype;

class RoutingLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
  // Both passes of an edge case.
  void run(EdgeCase edge, TestLayer::Options options) {
    shape_ = edge.shape;
    inputs_ = std::move(edge.inputs);
    if (options.recipe == Recipe::kBf16) shape_.alignment = 64;
    options.max_tokens = std::max<int64_t>(inputs_.tokens, 1);
    if (!edge.name.starts_with("row_overflow") || options.recipe == Recipe::kBf16)
      shape_.max_rows = reference::enough_rows(options.max_tokens, shape_);
    options.has_backward = true;
    auto layer = TestLayer::create(shape_, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    dy_ = reference::random_activations(inputs_.tokens, shape_.hidden, 77);
    ASSERT_TRUE(succeeded(options.recipe == Recipe::kBf16 ? layer_->upload_weights(inputs_)
                                                          : layer_->set_weights(inputs_)));
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->run(inputs_)));
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  uint32_t status() { return layer_->read<uint32_t>("status").front(); }

  reference::LayerShape shape_;
  reference::LayerInputs inputs_;
  std::vector<uint16_t> dy_;
  std::unique_ptr<TestLayer> layer_;
};

class RoutingEdge : public RoutingLayer,
                    public ::testing::WithParamInterface<std::tuple<Recipe, std::string>> {};

TEST_P(RoutingEdge, EqualsTheReferenceInEveryType) {
  const auto& [recipe, name] = GetParam();
  EdgeCase edge = edge_case(name).value();
  const uint32_t status_of_bad_ids = name == "bad_ids" ? reference::kBadExpertId : 0;
  const uint32_t overflow =
      name == "row_overflow" && recipe != Recipe::kBf16 ? reference::kRowOverflow : 0;
  run(edge, {.recipe = recipe,
             .topk_ids_dtype = IndexDtype::kI64,
             .topk_probs_dtype = TopkProbsDtype::kBf16});
  expect_reference(*layer_, inputs_, dy_);
  EXPECT_EQ(status(), status_of_bad_ids | overflow);
  edge.shape.ignores_foreign = true;
  for (int32_t& id : edge.inputs.topk_ids)
    if (id < -1) id = 99;
  run(edge, {.recompute = compiler::Recompute::kMoeExpert,
             .recipe = recipe,
             .topk_ids_dtype = IndexDtype::kI64,
             .topk_probs_dtype = TopkProbsDtype::kBf16});
  expect_reference(*layer_, inputs_, dy_);
  EXPECT_EQ(status(), overflow);
}

INSTANTIATE_TEST_SUITE_P(Cases, RoutingEdge,
                         ::testing::Combine(::testing::Values(Recipe::kFp8Flow, Recipe::kBf16),
                                            ::testing::Values("bad_ids", "zero_probability",
                                                              "no_tokens", "unrouted_ids",
                                                              "row_overflow", "top_all")),
                         [](const auto& one) {
                           return std::string(to_string(std::get<0>(one.param))) + "_" +
                                  std::get<1>(one.param);
                         });

// The same numbers in other types give the same bits.
TEST_F(RoutingLayer, GivesTheSameBitsWhateverTheTypesOfEqualNumbers) {
  EdgeCase edge = edge_case("zero_probability").value();
  for (float& prob : edge.inputs.topk_probs)
    prob = reference::float_from_bf16(reference::bf16_from_float(prob));
  run(edge, {});
  const auto y = layer_->read<uint16_t>("y"), dx = layer_->read<uint16_t>("dx");
  const auto dw1 = layer_->read<uint32_t>("dw1");
  std::vector<uint16_t> dprobs;
  for (const float dprob : layer_->read<float>("dprobs"))
    dprobs.push_back(reference::bf16_from_float(dprob));
  run(edge, {.topk_ids_dtype = IndexDtype::kI64, .topk_probs_dtype = TopkProbsDtype::kBf16});
  EXPECT_EQ(layer_->read<uint16_t>("y"), y);
  EXPECT_EQ(layer_->read<uint16_t>("dx"), dx);
  EXPECT_EQ(layer_->read<uint32_t>("dw1"), dw1);
  EXPECT_EQ(layer_->read<uint16_t>("dprobs"), dprobs);
}

}  // namespace
}  // namespace moejit::testing
