// SPDX-License-Identifier: Apache-2.0
// Layers that get rows in the order of experts, beside layers that get the same rows as tokens with
// one choice each: the same bits of every result, and every tensor of both passes against the CPU
// reference.
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <tuple>

namespace moejit::testing {
namespace {

using compiler::LayerInput;
using compiler::Recipe;
using reference::LayerInputs;

constexpr uint16_t kNan = 0x7fc0;

// Rows of experts with 0, 1, 17, 64, 130 and 20 rows, and of nobody, which are NaN.
struct Rows {
  explicit Rows(bool has_biases) {
    shape.has_biases = has_biases;
    inputs = random_inputs(shape, 240, 11);
    std::vector<int32_t> ids;
    for (const int32_t size : {0, 1, 17, 64, 130, 20})
      ids.insert(ids.end(), static_cast<size_t>(size), expert++);
    ids.resize(240, -1);
    inputs.topk_ids = ids;
    for (size_t i = 0; i < ids.size(); ++i) inputs.topk_probs[i] = 0.25F + 0.01F * (i % 50);
    dy = reference::random_activations(240, shape.hidden, 12);
    for (std::vector<uint16_t>* const rows : {&inputs.x, &dy})
      std::fill(rows->end() - 8 * shape.hidden, rows->end(), kNan);
    if (!has_biases) return;
    inputs.b1 = reference::random_activations(shape.experts, 2 * shape.intermediate, 13);
    inputs.b2 = reference::random_activations(shape.experts, shape.hidden, 14);
  }
  reference::LayerShape shape{.experts = 6, .top_k = 1, .hidden = 160, .intermediate = 96};
  LayerInputs inputs;
  std::vector<uint16_t> dy;

 private:
  int32_t expert = 0;
};

class GroupedInput : public ::testing::TestWithParam<std::tuple<Recipe, bool>> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
  // Runs forward, and backward if the layer has it, over rows that come in this way.
  std::unique_ptr<TestLayer> run(const Rows& rows, LayerInput input, bool has_backward) {
    reference::LayerShape shape = rows.shape;
    const Recipe& recipe = std::get<0>(GetParam());
    shape.alignment =
        input == LayerInput::kGrouped ? least_splits_alignment(recipe, has_backward) : 64;
    shape.max_rows = reference::enough_rows(rows.inputs.tokens, shape);
    auto layer = TestLayer::create(shape, {.max_tokens = rows.inputs.tokens,
                                           .has_backward = has_backward,
                                           .recipe = recipe,
                                           .biases = rows.shape.has_biases,
                                           .input = input,
                                           .topk_ids_dtype = compiler::IndexDtype::kI64});
    EXPECT_TRUE(succeeded(layer));
    if (!layer) return nullptr;
    const bool has_codes = (*layer)->plan().quantized_weight_bytes > 0;
    EXPECT_TRUE(succeeded(has_codes ? (*layer)->set_weights(rows.inputs)
                                    : (*layer)->upload_weights(rows.inputs)));
    EXPECT_TRUE(succeeded((*layer)->run(rows.inputs)));
    if (!has_backward) return std::move(*layer);
    EXPECT_TRUE(succeeded((*layer)->set_gradient(rows.dy)));
    EXPECT_TRUE(succeeded((*layer)->backward(GradientMode::kOverwrite)));
    EXPECT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    return std::move(*layer);
  }
};

// A sum of one row begins with 0, and 0 + -0 is 0: rows that nothing sums may keep -0.
std::vector<uint16_t> without_signs_of_zero(std::vector<uint16_t> values) {
  for (uint16_t& value : values)
    if (value == 0x8000) value = 0;
  return values;
}

TEST_P(GroupedInput, HasTheBitsOfTokensWithOneChoice) {
  const auto& [recipe, has_biases] = GetParam();
  const Rows rows(has_biases);
  for (const bool has_backward : {false, true}) {
    const auto tokens = run(rows, LayerInput::kTokens, has_backward);
    const auto grouped = run(rows, LayerInput::kGrouped, has_backward);
    ASSERT_TRUE(tokens && grouped);
    for (const std::string_view name : {"y", "dx"})
      EXPECT_EQ(without_signs_of_zero(grouped->read<uint16_t>(name)),
                without_signs_of_zero(tokens->read<uint16_t>(name)))
          << name;
    for (const std::string_view name : {"dprobs", "dw1", "dw2", "db1", "db2"})
      EXPECT_EQ(grouped->read<uint32_t>(name), tokens->read<uint32_t>(name)) << name;
    EXPECT_EQ(grouped->read<uint32_t>("status").front(), 0U);
    expect_reference(*grouped, rows.inputs, has_backward ? rows.dy : std::vector<uint16_t>(),
                     has_backward ? std::vector{compiler::Pass::kForward, compiler::Pass::kBackward}
                                  : std::vector{compiler::Pass::kForward});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, GroupedInput,
    ::testing::Values(std::tuple{Recipe::kBf16, true}, std::tuple{Recipe::kFp8Flow, true},
                      std::tuple{Recipe::kFp8Blockwise, true},
                      std::tuple{Recipe::kFp8Delayed, false},
                      std::tuple{Recipe::kFp8Current, false},
                      std::tuple{Recipe::kFp8Rowwise, false}, std::tuple{Recipe::kMxfp8, true},
                      std::tuple{Recipe::kNvfp4, false}),
    [](const auto& one) { return std::string(to_string(std::get<0>(one.param))); });

}  // namespace
}  // namespace moejit::testing
