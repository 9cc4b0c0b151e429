// SPDX-License-Identifier: Apache-2.0
#include "cli/inputs/layer_inputs.h"

#include "cli/safetensors/write_safetensors.h"
#include "compiler/compiler.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::cli {
namespace {

using compiler::DType;

// Inputs of a layer of one expert whose contraction has three blocks, weights quantised.
class QuantizedInputs : public ::testing::Test {
 protected:
  Result<TensorMap> load(const std::vector<float>& w1_scales, int32_t sharing) const {
    constexpr int64_t kH = 272, kI = 16;
    const compiler::Layer layer{.experts = 1,
                                .local_experts = 1,
                                .top_k = 1,
                                .hidden = kH,
                                .intermediate = kI,
                                .scale_sharing_k = sharing,
                                .splits_alignment = 16,
                                .max_tokens = 1,
                                .max_permuted_rows = 16};
    const auto bytes = [](int64_t count) {
      return std::vector<uint8_t>(static_cast<size_t>(count));
    };
    const TensorMap tensors = {
        {"x", make_tensor(DType::kBF16, {1, kH}, std::vector<uint16_t>(kH))},
        {"topk_ids", make_tensor<int32_t>(DType::kI32, {1, 1}, {0})},
        {"topk_probs", make_tensor<float>(DType::kF32, {1, 1}, {1.0f})},
        {"w1_q", make_tensor(DType::kF8E4M3, {1, 2 * kI, kH}, bytes(2 * kI * kH))},
        {"w1_scale_inv", make_tensor(DType::kF32, {1, 2, 3}, w1_scales)},
        {"w2_q", make_tensor(DType::kF8E4M3, {1, kH, kI}, bytes(kH * kI))},
        {"w2_scale_inv", make_tensor<float>(DType::kF32, {1, 3, 1}, {1.0f, 2.0f, 4.0f})}};
    const std::string path = (dir_ / "inputs.safetensors").string();
    EXPECT_TRUE(testing::succeeded(write_safetensors(path, tensors)));
    const auto plan = plan_layer(layer, {});
    EXPECT_TRUE(testing::succeeded(plan));
    return load_inputs(*plan, {.input_path = path});
  }

  testing::TestDir dir_;
};

TEST_F(QuantizedInputs, MayHaveAScaleForEachBlock) {
  EXPECT_TRUE(testing::succeeded(load({1, 2, 3, 4, 5, 6}, 1)));
}

TEST_F(QuantizedInputs, MayHaveSharedScalesWhereTheLayerWantsThem) {
  EXPECT_TRUE(testing::succeeded(load({1, 1, 3, 4, 4, 6}, 2)));
}

TEST_F(QuantizedInputs, AreRefusedWhereBlocksThatShareAScaleHaveTwo) {
  const auto inputs = load({1, 1, 3, 4, 5, 6}, 2);
  ASSERT_FALSE(inputs);
  EXPECT_EQ(inputs.error().code, ErrorCode::kTensorMismatch);
  EXPECT_EQ(inputs.error().message,
            "tensor w1_scale_inv: block 1 of row 1 has the scale 5, wanted 4 as the block before "
            "it, with which it shares its scale");
}

}  // namespace
}  // namespace moejit::cli
