// SPDX-License-Identifier: Apache-2.0
// The same bits from run to run, and for a token whatever else is in its batch.
#include "tests/gpu/small_shape.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using reference::LayerInputs;

class RepeatabilityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    inputs_ = random_inputs(kSmallShape, kTokensOfSmallCall, 3);
    auto layer = TestLayer::create(kSmallShape, {.max_tokens = 192, .keep_intermediates = false});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs_)));
  }
  std::vector<uint16_t> y_of(const LayerInputs& inputs) {
    EXPECT_TRUE(succeeded(layer_->run(inputs)));
    return layer_->read<uint16_t>("y");
  }
  static std::vector<uint16_t> row(const std::vector<uint16_t>& y, int64_t token) {
    const auto begin = y.begin() + token * kSmallShape.hidden;
    return {begin, begin + kSmallShape.hidden};
  }
  // The tokens [first, first + count) as a batch of their own.
  LayerInputs part(int64_t first, int64_t count) const {
    const auto cut = [&](auto values, int64_t columns) {
      values.erase(values.begin() + (first + count) * columns, values.end());
      values.erase(values.begin(), values.begin() + first * columns);
      return values;
    };
    return {.tokens = count,
            .x = cut(inputs_.x, kSmallShape.hidden),
            .topk_ids = cut(inputs_.topk_ids, kSmallShape.top_k),
            .topk_probs = cut(inputs_.topk_probs, kSmallShape.top_k)};
  }

  LayerInputs inputs_;
  std::unique_ptr<TestLayer> layer_;
};

TEST_F(RepeatabilityTest, TwoRunsGiveTheSameBits) {
  const auto first = y_of(inputs_);
  EXPECT_TRUE(matches(compare_bf16({"y", kSmallShape.hidden}, y_of(inputs_), first)));
}

TEST_F(RepeatabilityTest, AKernelForGemmAndActivationGivesTheBitsOfTwo) {
  const auto fused = y_of(inputs_);
  for (const bool keep_intermediates : {false, true}) {
    SCOPED_TRACE(keep_intermediates);
    auto layer = TestLayer::create(kSmallShape, {.max_tokens = 192,
                                                 .keep_intermediates = keep_intermediates,
                                                 .fuse_activation = keep_intermediates});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs_)));
    EXPECT_TRUE(matches(compare_bf16({"y", kSmallShape.hidden}, y_of(inputs_), fused)));
  }
}

TEST_F(RepeatabilityTest, ATokenDoesNotSeeTheOthers) {
  const auto before = y_of(inputs_);
  const LayerInputs other =
      random_inputs(kSmallShape, kTokensOfSmallCall, 4, {.unrouted_share = 0.0});
  for (const int64_t token : {int64_t{0}, int64_t{17}, kTokensOfSmallCall - 1}) {
    LayerInputs mixed = other;
    std::copy_n(inputs_.x.begin() + token * kSmallShape.hidden, kSmallShape.hidden,
                mixed.x.begin() + token * kSmallShape.hidden);
    std::copy_n(inputs_.topk_ids.begin() + token * kSmallShape.top_k, kSmallShape.top_k,
                mixed.topk_ids.begin() + token * kSmallShape.top_k);
    std::copy_n(inputs_.topk_probs.begin() + token * kSmallShape.top_k, kSmallShape.top_k,
                mixed.topk_probs.begin() + token * kSmallShape.top_k);
    EXPECT_EQ(row(y_of(mixed), token), row(before, token)) << "token " << token;
  }
}

TEST_F(RepeatabilityTest, ATokenDoesNotSeeTheSizeOfTheBatch) {
  const auto whole = y_of(inputs_);
  for (const int64_t count : {int64_t{1}, int64_t{13}}) {
    const auto y = y_of(part(7, count));
    for (int64_t token = 0; token < count; ++token)
      EXPECT_EQ(row(y, token), row(whole, 7 + token)) << "token " << token << " of " << count;
  }
}

}  // namespace
}  // namespace moejit::testing
