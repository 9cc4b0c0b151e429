// SPDX-License-Identifier: Apache-2.0
// A token has the same bits in any batch of a layer, and in layers for other largest batches, with
// every recipe but those whose scales belong to all rows of an expert.
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Recipe;
using reference::LayerInputs;
using reference::LayerShape;

constexpr int64_t kTokens = 80;
// As many that experts have more than 64 rows in the mean: tiles are not swapped then.
constexpr int64_t kManyTokens = 192;

class OtherBatches : public ::testing::TestWithParam<Recipe> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    // The layers of recipe_rows_test.cpp.
    const bool has_groups = GetParam().tokens.scale == compiler::ScaleOf::k1x32;
    shape_ = {.experts = 4,
              .top_k = 2,
              .hidden = has_groups ? 288 : 272,
              .intermediate = has_groups ? 160 : 144,
              .alignment = 64,
              .max_rows = 512};
    inputs_ = reference::random_inputs(shape_, kTokens, 21);
    dy_ = reference::random_activations(kTokens, shape_.hidden, 77);
    layer_ = make({.max_tokens = kTokens, .has_backward = true});
  }
  std::unique_ptr<TestLayer> make(TestLayer::Options options) const {
    options.recipe = GetParam();
    auto made = TestLayer::create(shape_, options);
    EXPECT_TRUE(succeeded(made));
    if (!made) return nullptr;
    if (layer_ != nullptr) {
      runtime::TensorMap states = layer_->states();
      std::erase_if(states, [&](const auto& state) {
        return find_tensor((*made)->plan(), state.first) == nullptr;
      });
      EXPECT_TRUE(succeeded((*made)->set_states(states)));
    }
    EXPECT_TRUE(succeeded(is_quantized(GetParam().weights) ? (*made)->set_weights(inputs_)
                                                           : (*made)->upload_weights(inputs_)));
    return std::move(*made);
  }

  struct Results {
    std::vector<uint16_t> y, dx;
    std::vector<uint32_t> dprobs;
  };
  // Returns what tokens [first, first + count) get that are a batch of their own.
  Results run(TestLayer& layer, int64_t first, int64_t count) const {
    LayerInputs batch{.tokens = count,
                      .x = rows(inputs_.x, first, count),
                      .topk_ids = rows(inputs_.topk_ids, first, count),
                      .topk_probs = rows(inputs_.topk_probs, first, count)};
    EXPECT_TRUE(succeeded(layer.run(batch)));
    Results results{.y = layer.read<uint16_t>("y"), .dx = {}, .dprobs = {}};
    if (find_tensor(layer.plan(), "dx") == nullptr) return results;
    EXPECT_TRUE(succeeded(layer.set_gradient(rows(dy_, first, count))));
    EXPECT_TRUE(succeeded(layer.backward(GradientMode::kOverwrite)));
    EXPECT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    results.dx = layer.read<uint16_t>("dx");
    results.dprobs = layer.read<uint32_t>("dprobs");
    return results;
  }
  // Returns the rows of tokens of all tokens' values.
  template <typename T>
  static std::vector<T> rows(const std::vector<T>& values, int64_t first, int64_t count) {
    const auto columns = std::ssize(values) / kTokens;
    return {values.begin() + first * columns, values.begin() + (first + count) * columns};
  }

  LayerShape shape_;
  LayerInputs inputs_;
  std::vector<uint16_t> dy_;
  std::unique_ptr<TestLayer> layer_;
};

TEST_P(OtherBatches, GiveATokenTheSameBits) {
  ASSERT_NE(layer_, nullptr);
  const Results all = run(*layer_, 0, kTokens);
  for (const int64_t count : {1, 13}) {
    const Results wanted{.y = rows(all.y, 7, count),
                         .dx = rows(all.dx, 7, count),
                         .dprobs = rows(all.dprobs, 7, count)};
    const Results got = run(*layer_, 7, count);
    EXPECT_TRUE(got.y == wanted.y) << "y of " << count << " tokens";
    EXPECT_TRUE(got.dx == wanted.dx) << "dx of " << count << " tokens";
    EXPECT_TRUE(got.dprobs == wanted.dprobs) << "dprobs of " << count << " tokens";
  }
  const auto many = make({.max_tokens = kManyTokens});
  ASSERT_NE(many, nullptr);
  EXPECT_TRUE(run(*many, 0, kTokens).y == all.y) << "y of a layer for more tokens";
}

INSTANTIATE_TEST_SUITE_P(Recipes, OtherBatches,
                         ::testing::Values(Recipe::kBf16, Recipe::kFp8Flow, Recipe::kFp8Blockwise,
                                           Recipe::kFp8Delayed, Recipe::kFp8Rowwise,
                                           Recipe::kMxfp8),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace moejit::testing
