// SPDX-License-Identifier: Apache-2.0
// Kernels of a layer launched one at a time, as tools do that time them.
#include "tests/gpu/small_shape.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using reference::LayerInputs;

class SingleKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    // Workspace is shared by tensors whose lifetimes are apart, as in a real call.
    auto layer = TestLayer::create(kSmallShape, {.max_tokens = 64, .keep_intermediates = false});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
  }
  Result<void> launch(std::size_t index, const std::vector<runtime::TensorRef>& tensors) {
    return layer_->layer().launch(
        index, tensors, {layer_->workspace(), layer_->layer().plan().workspace_bytes}, nullptr);
  }
  std::vector<runtime::TensorRef> without(std::string_view name) const {
    std::vector<runtime::TensorRef> tensors = layer_->tensors();
    std::erase_if(tensors, [&](const runtime::TensorRef& tensor) { return tensor.name == name; });
    return tensors;
  }
  std::size_t first_of(std::string_view phase) const {
    std::size_t index = 0;
    while (layer_->plan().kernels[index].phase != phase) ++index;
    return index;
  }

  const LayerInputs inputs_ = random_inputs(kSmallShape, kTokensOfSmallCall, 3);
  std::unique_ptr<TestLayer> layer_;
};

TEST_F(SingleKernelTest, InTheOrderOfThePlanGivesTheResultsOfTheCallsHoweverOften) {
  ASSERT_TRUE(succeeded(layer_->set_weights(inputs_)));
  ASSERT_TRUE(succeeded(layer_->run(inputs_)));
  const auto wanted_y = layer_->read<uint16_t>("y");
  const auto wanted_w1 = layer_->read<uint8_t>("w1_q");

  auto fresh = TestLayer::create(kSmallShape, {.max_tokens = 64, .keep_intermediates = false});
  ASSERT_TRUE(succeeded(fresh));
  layer_ = std::move(*fresh);
  ASSERT_TRUE(succeeded(layer_->upload_weights(inputs_)));
  ASSERT_TRUE(succeeded(layer_->set_inputs(inputs_)));
  ASSERT_TRUE(succeeded(layer_->poison()));
  for (std::size_t i = 0; i < layer_->plan().kernels.size(); ++i)
    for (int repeat = 0; repeat < 3; ++repeat) ASSERT_TRUE(succeeded(launch(i, layer_->tensors())));
  ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  EXPECT_TRUE(
      matches(compare_bf16({"y", kSmallShape.hidden}, layer_->read<uint16_t>("y"), wanted_y)));
  EXPECT_TRUE(matches(
      compare_e4m3({"w1_q", kSmallShape.hidden}, layer_->read<uint8_t>("w1_q"), wanted_w1)));
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
}

TEST_F(SingleKernelTest, WantsTheTensorsOfItsOwnCallOnly) {
  ASSERT_TRUE(succeeded(layer_->set_inputs(inputs_)));
  const auto refused = [&](std::string_view phase, std::string_view name) {
    const auto launched = launch(first_of(phase), without(name));
    return !launched && launched.error().code == ErrorCode::kMissingTensor &&
           launched.error().message.find(name) != std::string::npos;
  };
  EXPECT_TRUE(refused("weights", "w1"));
  EXPECT_FALSE(refused("weights", "x"));
  EXPECT_TRUE(refused("forward", "x"));
  EXPECT_FALSE(refused("forward", "w1"));
}

TEST_F(SingleKernelTest, RefusesAKernelThatThePlanDoesNotHave) {
  const auto launched = launch(layer_->plan().kernels.size(), layer_->tensors());
  ASSERT_FALSE(launched.has_value());
  EXPECT_EQ(launched.error().code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace moejit::testing
