// SPDX-License-Identifier: Apache-2.0
// Layers with weight_checks: update_weights() casts weights that have changed, whoever wrote to
// them, and leaves the quantized ones alone otherwise.
#include "runtime/reference/weight_digest.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Recipe;
using reference::LayerInputs;
using reference::LayerShape;

constexpr LayerShape kSmallShape{
    .experts = 4, .top_k = 2, .hidden = 160, .intermediate = 128, .alignment = 16, .max_rows = 256};

using Bytes = std::vector<std::byte>;

class WeightChecksTest : public ::testing::TestWithParam<Recipe> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    auto layer = TestLayer::create(kSmallShape, {.max_tokens = 20,
                                                 .keep_intermediates = false,
                                                 .recipe = GetParam(),
                                                 .weight_checks = true});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    inputs_ = random_inputs(kSmallShape, 1, 1);
  }

  // Returns the names of the quantized weights, without the digest.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const compiler::TensorPlan& tensor : layer_->plan().tensors)
      if (tensor.role == compiler::TensorRole::kQuantized && !begins_as_zeros(tensor))
        names.push_back(tensor.name);
    return names;
  }
  Bytes quantized() {
    Bytes all;
    for (const std::string& name : names()) {
      const Bytes bytes = layer_->read<std::byte>(name);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  // Updates with the weights of inputs_, and returns what that leaves.
  Bytes update() {
    EXPECT_TRUE(succeeded(layer_->set_weights(inputs_)));
    return quantized();
  }
  // Returns whether the last update cast, by the first word of the digest.
  bool was_cast() { return layer_->read<uint32_t>("weights_digest").front() == 0; }

  std::unique_ptr<TestLayer> layer_;
  LayerInputs inputs_;
};

TEST_P(WeightChecksTest, CastOnlyWhatHasChanged) {
  const Bytes first = update();
  EXPECT_TRUE(was_cast());
  EXPECT_EQ(update(), first);
  EXPECT_FALSE(was_cast());
  inputs_ = random_inputs(kSmallShape, 1, 2);
  const Bytes second = update();
  EXPECT_TRUE(was_cast());
  EXPECT_NE(second, first);
  EXPECT_EQ(update(), second);
  EXPECT_FALSE(was_cast());
}

TEST_P(WeightChecksTest, SeeEveryBitOfSmallWeights) {
  update();
  update();
  ASSERT_FALSE(was_cast());
  for (std::vector<uint16_t>* const weights : {&inputs_.w1, &inputs_.w2})
    for (const size_t place : {size_t{0}, weights->size() / 2 + 37, weights->size() - 1}) {
      (*weights)[place] ^= 1u;
      update();
      EXPECT_TRUE(was_cast()) << place;
      update();
      EXPECT_FALSE(was_cast()) << place;
    }
  // The same values in another order.
  const size_t matrix = inputs_.w1.size() / kSmallShape.experts;
  std::swap_ranges(inputs_.w1.begin(), inputs_.w1.begin() + static_cast<int64_t>(matrix),
                   inputs_.w1.begin() + static_cast<int64_t>(matrix));
  update();
  EXPECT_TRUE(was_cast());
  std::swap(inputs_.w2[0], inputs_.w2[1]);
  update();
  EXPECT_TRUE(was_cast());
  std::swap_ranges(inputs_.w2.begin(), inputs_.w2.begin() + 2, inputs_.w2.begin() + 2);
  update();
  EXPECT_TRUE(was_cast()) << "two words of a thread";
}

TEST_P(WeightChecksTest, GiveTheBitsOfALayerWithoutThem) {
  auto plain = TestLayer::create(
      kSmallShape, {.max_tokens = 20, .keep_intermediates = false, .recipe = GetParam()});
  ASSERT_TRUE(succeeded(plain));
  ASSERT_TRUE(succeeded((*plain)->set_weights(inputs_)));
  Bytes wanted;
  for (const std::string& name : names()) {
    const Bytes bytes = (*plain)->read<std::byte>(name);
    wanted.insert(wanted.end(), bytes.begin(), bytes.end());
  }
  EXPECT_EQ(update(), wanted);
  ASSERT_TRUE(succeeded((*plain)->run(inputs_)));
  ASSERT_TRUE(succeeded(layer_->run(inputs_)));
  EXPECT_EQ(layer_->read<uint16_t>("y"), (*plain)->read<uint16_t>("y"));
}

TEST_P(WeightChecksTest, ObeySkipUpdate) {
  const Bytes first = update();
  const uint32_t skip = 1, keep = 0;
  ASSERT_TRUE(succeeded(layer_->set_optional("skip_update", &skip, sizeof(skip))));
  inputs_ = random_inputs(kSmallShape, 1, 3);
  EXPECT_EQ(update(), first);
  ASSERT_TRUE(succeeded(layer_->set_optional("skip_update", &keep, sizeof(keep))));
  EXPECT_NE(update(), first);
  EXPECT_TRUE(was_cast());
}

TEST_P(WeightChecksTest, KeepTheDigestOfTheReference) {
  update();
  const auto words = layer_->read<uint32_t>("weights_digest");
  const auto wanted = reference::weight_digest(inputs_.w1, inputs_.w2, 1);
  ASSERT_GT(words.size(), wanted.size());
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), words.end() - std::ssize(wanted)));
}

INSTANTIATE_TEST_SUITE_P(Recipes, WeightChecksTest,
                         ::testing::Values(Recipe::kFp8Flow, Recipe::kFp8Current,
                                           Recipe::kFp8Rowwise, Recipe::kMxfp8, Recipe::kNvfp4),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Weights beyond the bytes that are all compared: windows have two probes here.
TEST(LargeWeightChecks, SeeEveryRunOfTwoWindows) {
  if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  constexpr LayerShape kLargeShape{.experts = 4,
                                   .top_k = 2,
                                   .hidden = 256,
                                   .intermediate = 384,
                                   .alignment = 16,
                                   .max_rows = 256};
  auto created = TestLayer::create(
      kLargeShape, {.max_tokens = 16, .keep_intermediates = false, .weight_checks = true});
  ASSERT_TRUE(succeeded(created));
  TestLayer& layer = **created;
  LayerInputs inputs = random_inputs(kLargeShape, 1, 1);
  const auto was_cast = [&] {
    EXPECT_TRUE(succeeded(layer.set_weights(inputs)));
    return layer.read<uint32_t>("weights_digest").front() == 0;
  };
  const size_t bytes = 2 * (inputs.w1.size() + inputs.w2.size());
  const size_t window = (bytes + 64 * 32768 - 1) / (64 * 32768) * 64;
  ASSERT_GT(window, size_t{64});
  EXPECT_TRUE(was_cast());
  EXPECT_FALSE(was_cast());
  for (std::vector<uint16_t>* const weights : {&inputs.w1, &inputs.w2})
    for (const size_t first : {size_t{0}, weights->size() / 3, weights->size() - window}) {
      for (size_t i = first; i < first + window; ++i) (*weights)[i] ^= 1u;  // of two bytes each
      EXPECT_TRUE(was_cast()) << first;
    }
  EXPECT_FALSE(was_cast());
}

}  // namespace
}  // namespace moejit::testing
