// SPDX-License-Identifier: Apache-2.0
// Layers whose gate and up are tensors of their own, beside layers with one w1: the same bits of
// every result, and every tensor of both passes against the CPU reference.
#include "runtime/reference/layouts.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::GateUpLayout;
using compiler::Recipe;
using compiler::WgradDtype;
using reference::LayerInputs;

struct Case {
  const char* name;
  Recipe recipe = Recipe::kFp8Flow;
  WgradDtype wgrad_dtype = WgradDtype::kF32;
  int64_t sharing = 1;
  bool biases = false;
  int64_t tokens = 45;  // a mean of 15 rows, for which tiles are swapped
};

class SeparateGateUp : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    shape_.sharing = GetParam().sharing;
    shape_.has_biases = GetParam().biases;
    const int64_t tokens = GetParam().tokens;
    inputs_ = random_inputs(shape_, tokens, 11);
    dy_ = reference::random_activations(tokens, shape_.hidden, 12);
    shape_.max_rows = reference::enough_rows(tokens, shape_);
    if (!shape_.has_biases) return;
    inputs_.b1 = reference::random_activations(shape_.experts, 2 * shape_.intermediate, 13);
    inputs_.b2 = reference::random_activations(shape_.experts, shape_.hidden, 14);
  }

  // Runs forward, and then backward if the layer has it.
  std::unique_ptr<TestLayer> run(GateUpLayout layout, bool has_backward) {
    auto layer = TestLayer::create(shape_, {.max_tokens = inputs_.tokens,
                                            .has_backward = has_backward,
                                            .wgrad_dtype = GetParam().wgrad_dtype,
                                            .recipe = GetParam().recipe,
                                            .gate_up_layout = layout,
                                            .biases = GetParam().biases});
    EXPECT_TRUE(succeeded(layer));
    if (!layer) return nullptr;
    EXPECT_TRUE(succeeded((*layer)->set_weights(inputs_)));
    EXPECT_TRUE(succeeded((*layer)->run(inputs_)));
    if (!has_backward) return std::move(*layer);
    EXPECT_TRUE(succeeded((*layer)->set_gradient(dy_)));
    const GradientMode mode = adds() ? GradientMode::kAdd : GradientMode::kOverwrite;
    if (adds()) {
      EXPECT_TRUE(succeeded((*layer)->set_weight_gradients(3.0F)));
    }
    EXPECT_TRUE(succeeded((*layer)->backward(mode)));
    EXPECT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    return std::move(*layer);
  }
  static bool adds() { return GetParam().wgrad_dtype == WgradDtype::kF32; }

  static bool activates_in_gemm(TestLayer& layer) {
    return std::ranges::any_of(layer.plan().kernels, [](const compiler::KernelPlan& kernel) {
      return kernel.operation.starts_with("gemm_fc1_activation");
    });
  }
  static bool fuses_activation() { return test_device().device->target().features.has_wgmma; }
  static bool is_bf16() { return GetParam().recipe == Recipe::kBf16; }

  static std::vector<std::byte> section_of(TestLayer& layer, std::string_view name,
                                           std::size_t section) {
    const std::vector<std::byte> all = layer.read<std::byte>(name);
    return reference::section_of<std::byte>(all, section, all.size() / kExperts / 2);
  }

  static constexpr int64_t kExperts = 6;
  // 96 columns of gate and up, which tiles and scale blocks of 128 do not divide.
  reference::LayerShape shape_{
      .experts = kExperts, .top_k = 2, .hidden = 160, .intermediate = 96, .alignment = 64};
  LayerInputs inputs_;
  std::vector<uint16_t> dy_;
};

// Experts have so few rows that gate and up are activated in the GEMM, but for backward.
TEST_P(SeparateGateUp, HasTheBitsOfOneWeight) {
  std::vector<std::byte> y;
  for (const bool has_backward : {false, true}) {
    const auto joined = run(GateUpLayout::kConcat, has_backward);
    const auto separate = run(GateUpLayout::kSeparate, has_backward);
    ASSERT_TRUE(joined && separate);
    EXPECT_EQ(joined->read<std::byte>("w1_q").empty(), is_bf16());
    const bool has_few_rows = GetParam().tokens < 100;
    EXPECT_EQ(activates_in_gemm(*separate),
              !has_backward && shape_.sharing == 1 && has_few_rows && fuses_activation());
    if (!has_backward) y = separate->read<std::byte>("y");
    EXPECT_TRUE(separate->read<std::byte>("y") == y);
    for (const std::string_view name : {"y", "w1_q", "dx", "dprobs", "dw2", "db1", "db2"})
      EXPECT_TRUE(separate->read<std::byte>(name) == joined->read<std::byte>(name)) << name;
    EXPECT_EQ(separate->read<uint32_t>("status").front(), 0U);
    if (!has_backward) continue;
    EXPECT_TRUE(separate->read<std::byte>("dw1_gate") == section_of(*joined, "dw1", 0));
    EXPECT_TRUE(separate->read<std::byte>("dw1_up") == section_of(*joined, "dw1", 1));
    EXPECT_TRUE(separate->read<std::byte>("dw1_up") != section_of(*joined, "dw1", 0));
    EXPECT_TRUE(separate->damage().empty());
    if (!adds())
      expect_reference(*separate, inputs_, dy_,
                       {compiler::Pass::kForward, compiler::Pass::kBackward});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SeparateGateUp,
    ::testing::Values(Case{.name = "flow_adds"},
                      Case{.name = "flow_bf16", .wgrad_dtype = WgradDtype::kBf16, .biases = true},
                      Case{.name = "flow_shared", .wgrad_dtype = WgradDtype::kBf16, .sharing = 2},
                      Case{.name = "blockwise",
                           .recipe = Recipe::kFp8Blockwise,
                           .wgrad_dtype = WgradDtype::kBf16},
                      Case{.name = "bf16_adds", .recipe = Recipe::kBf16, .biases = true},
                      Case{.name = "bf16",
                           .recipe = Recipe::kBf16,
                           .wgrad_dtype = WgradDtype::kBf16,
                           .tokens = 130}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace moejit::testing
