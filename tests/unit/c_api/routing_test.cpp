// SPDX-License-Identifier: Apache-2.0
// What calls say to tensors of the routing, and backward calls to those of another forward call.
#include "tests/unit/c_api/sim_layer.h"

#include <array>
#include <string>
#include <vector>

namespace moejit::testing {
namespace {

class CApiRouting : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sim_.open(), MOEJIT_OK) << moejit_last_error()->message;
    use_own_tensors();
    ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim_.layer(), &call_)));
  }
  void use_own_tensors() {
    call_ = sim_.call();
    tensors_.assign(call_.tensors, call_.tensors + call_.tensor_count);
  }
  const moejit_call* call() {
    call_.tensors = tensors_.data();
    call_.tensor_count = tensors_.size();
    return &call_;
  }
  moejit_error_code forward() { return moejit_layer_forward(sim_.layer(), call()); }
  moejit_error_code backward() {
    return moejit_layer_backward(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, call());
  }
  // The tensor of this name as forward() gets it, to be changed.
  DLTensor& change(std::string_view name) {
    for (moejit_tensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      changed_ = *tensor.tensor;
      tensor.tensor = &changed_;
    }
    return changed_;
  }

  SimLayer sim_;
  moejit_call call_{};
  std::vector<moejit_tensor> tensors_;
  DLTensor changed_{};
};

TEST_F(CApiRouting, NamesTheFieldThatTakesTensorsAsTheyAre) {
  change("topk_ids").dtype = {.code = kDLInt, .bits = 64, .lanes = 1};
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "its dtype is int64, wanted I32"));
  EXPECT_EQ(std::string_view(moejit_last_error()->hint),
            "a layer with \"topk_ids_dtype\": \"i64\" in its description takes it so");
  use_own_tensors();
  change("topk_probs").dtype = {.code = kDLBfloat, .bits = 16, .lanes = 1};
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_TENSOR_MISMATCH, "bfloat16"));
  EXPECT_NE(std::string_view(moejit_last_error()->hint).find("\"topk_probs_dtype\": \"bf16\""),
            std::string_view::npos);
}

TEST_F(CApiRouting, RefusesABackwardCallWithAnotherTThanItsForwardCall) {
  ASSERT_TRUE(is_ok(forward()));
  std::array<DLTensor, 4> fewer{};
  std::array<std::array<int64_t, 2>, 4> shapes{};
  std::size_t count = 0;
  for (moejit_tensor& tensor : tensors_) {
    const std::string_view name = tensor.name;
    if (name != "dy" && name != "dx" && name != "dprobs" && name != "topk_probs") continue;
    shapes[count] = {kSimTokens - 1, tensor.tensor->shape[1]};
    fewer[count] = *tensor.tensor;
    fewer[count].shape = shapes[count].data();
    tensor.tensor = &fewer[count++];
  }
  EXPECT_TRUE(is_error(backward(), MOEJIT_ERROR_TENSOR_MISMATCH, "has 10 tokens, wanted 11"));
  EXPECT_NE(std::string_view(moejit_last_error()->hint).find("saved block"), std::string::npos);
  use_own_tensors();
  EXPECT_TRUE(is_ok(backward()));
}

TEST_F(CApiRouting, NeedsTheStatusInForwardAndMayHaveItInBackward) {
  ASSERT_TRUE(is_ok(forward()));
  std::erase_if(tensors_, [](const moejit_tensor& tensor) {
    return std::string_view(tensor.name) == "status";
  });
  EXPECT_TRUE(is_ok(backward()));
  EXPECT_TRUE(is_error(forward(), MOEJIT_ERROR_MISSING_TENSOR, "tensor status is missing"));
}

}  // namespace
}  // namespace moejit::testing
