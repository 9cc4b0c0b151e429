// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/random_inputs.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moejit::testing {

// Names a layer with a backward pass that is small enough to be run some hundred times in the
// simulator. Its widths are no multiples of a scale block's, and none of its experts fills a tile.
struct GradientCase {
  std::string name;
  TestLayer::Options options;
};

inline reference::LayerShape gradient_shape(const TestLayer::Options& options) {
  return {.experts = 4,
          .top_k = 2,
          .hidden = 144,
          .intermediate = 80,
          .alignment = options.recipe == compiler::Recipe::kBf16 ? 64 : 16,
          .max_rows = 256,
          .has_gate = has_gate(options.activation),
          .has_biases = options.biases};
}

// Runs forward passes of a case and hands out what its backward passes leave.
class GradientLayer {
 public:
  static constexpr int64_t kTokens = 20;

  void make(TestLayer::Options options) {
    options.max_tokens = kTokens + 4;
    options.has_backward = true;
    options.keep_intermediates = false;
    const reference::LayerShape shape = gradient_shape(options);
    reference::LayerInputs inputs = reference::random_inputs(shape, kTokens, 5);
    if (options.biases) {
      const int64_t columns = (shape.has_gate ? 2 : 1) * shape.intermediate;
      inputs.b1 = reference::random_activations(shape.experts, columns, 31);
      inputs.b2 = reference::random_activations(shape.experts, shape.hidden, 32);
    }
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    ASSERT_TRUE(
        succeeded(layer_->set_gradient(reference::random_activations(kTokens, shape.hidden, 77))));
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    ASSERT_TRUE(succeeded(layer_->set_weight_gradients(0.75F)));
    ASSERT_TRUE(succeeded(layer_->poison()));  // forward's workspace is nobody's any more
  }

  // Returns the bytes of every gradient that the plan has, by name.
  std::map<std::string, std::vector<std::byte>> gradients() {
    std::map<std::string, std::vector<std::byte>> all;
    for (const std::string name : {"dx", "dprobs", "dw1", "dw2", "db1", "db2"})
      if (find_tensor(layer_->plan(), name) != nullptr) all[name] = layer_->read<std::byte>(name);
    return all;
  }

  TestLayer& layer() { return *layer_; }

 private:
  std::unique_ptr<TestLayer> layer_;
};

// Returns a case for each choice that changes the kernels of a backward pass, in each recipe, with
// biases and without.
inline std::vector<GradientCase> gradient_cases() {
  using compiler::Dispatch;
  using compiler::Recompute;
  const compiler::Activation relu_squared = compiler::make_activation("relu_squared").value();
  std::vector<GradientCase> cases;
  for (const bool biases : {false, true}) {
    const std::string end = biases ? "_with_biases" : "";
    cases.push_back({"fp8" + end, {.biases = biases}});
    cases.push_back({"fp8_apart" + end,
                     {.fuse_activation = false,
                      .fuse_transpose = false,
                      .fuse_activation_transpose = false,
                      .biases = biases}});
    cases.push_back(
        {"fp8_recomputed" + end, {.recompute = Recompute::kMoeExpert, .biases = biases}});
    cases.push_back({"bf16" + end, {.recipe = compiler::Recipe::kBf16, .biases = biases}});
    cases.push_back({"bf16_recomputed" + end,
                     {.recompute = Recompute::kMoeExpert,
                      .recipe = compiler::Recipe::kBf16,
                      .biases = biases}});
  }
  cases.push_back({"fp8_dispatched", {.dispatch = Dispatch::kFp8}});
  cases.push_back({"fp8_recomputed_apart",
                   {.fuse_activation = false,
                    .fuse_activation_transpose = false,
                    .recompute = Recompute::kMoeExpert}});
  cases.push_back({"fp8_without_a_gate", {.activation = relu_squared}});
  cases.push_back(
      {"bf16_without_a_gate", {.recipe = compiler::Recipe::kBf16, .activation = relu_squared}});
  cases.push_back({"bf16_interleaved",
                   {.recipe = compiler::Recipe::kBf16,
                    .gate_up_layout = compiler::GateUpLayout::kInterleaved}});
  return cases;
}

}  // namespace moejit::testing
