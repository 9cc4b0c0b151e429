// SPDX-License-Identifier: Apache-2.0
// The word on the device that tells update_weights() to leave the quantized weights as they are.
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using reference::LayerInputs;
using reference::LayerShape;

constexpr LayerShape kUpdatedShape{
    .experts = 4, .top_k = 2, .hidden = 144, .intermediate = 128, .alignment = 16, .max_rows = 256};

using Bytes = std::vector<std::byte>;

// Tests layers with one orientation of the quantized weights, and with both.
class SkipUpdateTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    auto layer = TestLayer::create(
        kUpdatedShape, {.max_tokens = 20, .keep_intermediates = false, .has_backward = GetParam()});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
  }

  Result<void> set_skip(uint32_t value) {
    return layer_->set_optional("skip_update", &value, sizeof(value));
  }
  // All quantized weights, one after the other, of this seed's weights or of those before.
  Bytes update(uint64_t seed) {
    EXPECT_TRUE(succeeded(layer_->set_weights(random_inputs(kUpdatedShape, 1, seed))));
    Bytes all;
    for (const compiler::TensorPlan& tensor : layer_->plan().tensors) {
      if (tensor.role != compiler::TensorRole::kQuantized) continue;
      const Bytes bytes = layer_->read<std::byte>(tensor.name);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(static_cast<int64_t>(all.size()), layer_->plan().quantized_weight_bytes);
    return all;
  }

  std::unique_ptr<TestLayer> layer_;
};

TEST_P(SkipUpdateTest, ChangesFromCallToCall) {
  ASSERT_TRUE(succeeded(layer_->poison()));  // what damage() looks for
  const Bytes of_one = update(1), of_two = update(2);
  ASSERT_NE(of_one, of_two);
  ASSERT_TRUE(succeeded(set_skip(1)));
  EXPECT_EQ(update(1), of_two);
  ASSERT_TRUE(succeeded(set_skip(0)));
  EXPECT_EQ(update(1), of_one);
  ASSERT_TRUE(succeeded(set_skip(0x3f800000u)));  // 1.0f
  EXPECT_EQ(update(2), of_one);
  ASSERT_TRUE(succeeded(set_skip(0)));
  EXPECT_EQ(update(2), of_two);
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
}

TEST_P(SkipUpdateTest, IsCheckedWhereItIsGiven) {
  ASSERT_TRUE(succeeded(set_skip(0)));
  std::vector<runtime::TensorRef> tensors = layer_->tensors();
  const auto skip = std::ranges::find(tensors, "skip_update", &runtime::TensorRef::name);
  ASSERT_NE(skip, tensors.end());
  skip->dtype = compiler::DType::kF32;
  const auto updated = layer_->layer().call("update_weights", tensors, {}, nullptr);
  ASSERT_FALSE(updated.has_value());
  EXPECT_EQ(updated.error().code, ErrorCode::kTensorMismatch);
  EXPECT_EQ(updated.error().message, "tensor skip_update: its dtype is F32, wanted U32");
}

TEST_P(SkipUpdateTest, IsOfNoOtherCall) {
  const LayerInputs inputs = random_inputs(kUpdatedShape, 5, 3);
  update(4);
  ASSERT_TRUE(succeeded(layer_->run(inputs)));
  const auto wanted = layer_->read<uint16_t>("y");
  ASSERT_TRUE(succeeded(set_skip(1)));
  ASSERT_TRUE(succeeded(layer_->run(inputs)));
  EXPECT_TRUE(
      matches(compare_bf16({"y", kUpdatedShape.hidden}, layer_->read<uint16_t>("y"), wanted)));
}

INSTANTIATE_TEST_SUITE_P(Layers, SkipUpdateTest, ::testing::Bool(), [](const auto& test) {
  return test.param ? "with_backward" : "forward_only";
});

}  // namespace
}  // namespace moejit::testing
