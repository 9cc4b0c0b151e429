// SPDX-License-Identifier: Apache-2.0
// Kernels that cast with known scales and transpose at once: gradients and states of layers with
// them have the bits of layers whose kernels stay apart, and are compared with the CPU reference.
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Recompute;
using reference::LayerInputs;
using reference::LayerShape;

// Tokens have many rows, so that x is cast again in backward; rows of zero probability have to be
// zeros again.
class DelayedTransposes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    for (size_t i = 0; i < inputs_.topk_probs.size(); i += 7) inputs_.topk_probs[i] = 0.0F;
  }
  // Runs a step and compares it with the reference.
  void run(TestLayer::Options options) {
    options.max_tokens = inputs_.tokens;
    options.has_backward = true;
    options.recipe = compiler::Recipe::kFp8Delayed;
    auto layer = TestLayer::create(shape_, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs_)));
    ASSERT_TRUE(succeeded(layer_->run(inputs_)));
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    expect_reference(*layer_, inputs_, dy_);
  }
  // Returns gradients and states.
  std::vector<std::vector<std::byte>> results() {
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name :
         {"dx", "dprobs", "dw1", "dw2", "fc1_amax_history", "fc2_amax_history",
          "fc1_grad_amax_history", "fc2_grad_amax_history"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }

  const LayerShape shape_{.experts = 4,
                          .top_k = 4,
                          .hidden = 272,
                          .intermediate = 144,
                          .alignment = 16,
                          .max_rows = 1024};
  LayerInputs inputs_ = reference::random_inputs(shape_, 96, 12);
  std::vector<uint16_t> dy_ = reference::random_activations(96, shape_.hidden, 77);
  std::unique_ptr<TestLayer> layer_;
};

TEST_F(DelayedTransposes, HaveTheBitsOfKernelsThatStayApart) {
  ASSERT_NO_FATAL_FAILURE(run({}));
  const auto fused = results();
  ASSERT_NO_FATAL_FAILURE(run({.fuse_transpose = false, .fuse_activation_transpose = false}));
  EXPECT_EQ(results(), fused);
}

TEST_F(DelayedTransposes, HaveTheseBitsWhereBackwardRecomputes) {
  ASSERT_NO_FATAL_FAILURE(run({}));
  const auto saved = results();
  ASSERT_NO_FATAL_FAILURE(run({.recompute = Recompute::kMoeExpert}));
  EXPECT_EQ(results(), saved);
}

}  // namespace
}  // namespace moejit::testing
