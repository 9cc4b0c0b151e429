// SPDX-License-Identifier: Apache-2.0
// The backward pass in two calls, through the C interface.
#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace moejit::testing {
namespace {

constexpr char kHalves[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "splits_alignment": 16, "max_tokens": 64, "passes": ["forward", "backward"],
  "backward_halves": true})";

using Bytes = std::vector<std::byte>;

// A layer whose forward pass has run.
class CApiBackwardHalves : public ::testing::Test {
 protected:
  void open(std::string_view json) {
    ASSERT_TRUE(is_ok(sim_.open(json)));
    const moejit_call call = sim_.call();
    ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim_.layer(), &call)));
    ASSERT_TRUE(is_ok(moejit_layer_forward(sim_.layer(), &call)));
  }
  // A call with the tensors that the call of this name takes.
  moejit_call call_with(const std::string& name) {
    moejit_call call = sim_.call();
    tensors_.clear();
    for (std::size_t i = 0; i < call.tensor_count; ++i)
      if (calls_with(sim_.layer(), call.tensors[i].name).contains(name))
        tensors_.push_back(call.tensors[i]);
    call.tensors = tensors_.data();
    call.tensor_count = tensors_.size();
    return call;
  }
  moejit_error_code run_data() {
    const moejit_call call = call_with("backward_data");
    return moejit_layer_backward_data(sim_.layer(), &call);
  }
  moejit_error_code run_weights(moejit_gradient_mode mode = MOEJIT_GRADIENT_OVERWRITE) {
    const moejit_call call = call_with("backward_weights");
    return moejit_layer_backward_weights(sim_.layer(), mode, &call);
  }
  // The code of a call without one of its tensors.
  moejit_error_code run_without(std::string_view name, bool is_data) {
    moejit_call call = call_with(is_data ? "backward_data" : "backward_weights");
    std::erase_if(tensors_, [&](const moejit_tensor& tensor) { return tensor.name == name; });
    call.tensor_count = tensors_.size();
    if (is_data) return moejit_layer_backward_data(sim_.layer(), &call);
    return moejit_layer_backward_weights(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, &call);
  }
  std::map<std::string, Bytes> gradients() {
    std::map<std::string, Bytes> all;
    for (const char* name : {"dx", "dprobs", "dw1", "dw2"}) all[name] = sim_.read(name);
    return all;
  }

  SimLayer sim_;
  std::vector<moejit_tensor> tensors_;
};

TEST_F(CApiBackwardHalves, GiveTheBitsOfTheWhole) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  const moejit_call whole = call_with("backward");
  ASSERT_TRUE(is_ok(moejit_layer_backward(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, &whole)));
  const auto wanted = gradients();
  for (const auto& [name, bytes] : wanted)
    ASSERT_TRUE(is_ok(moejit_device_fill(sim_.device(), sim_.tensor(name).data, 0,
                                         static_cast<int64_t>(bytes.size()), nullptr)));
  ASSERT_TRUE(is_ok(run_data()));
  EXPECT_EQ(sim_.read("dx"), wanted.at("dx"));
  ASSERT_TRUE(is_ok(run_weights(MOEJIT_GRADIENT_ADD)));  // to 0
  EXPECT_TRUE(gradients() == wanted);
}

TEST_F(CApiBackwardHalves, TakeBlocksOfTheSizesOfACall) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  moejit_plan_sizes sizes = {};
  sizes.struct_size = sizeof(sizes);
  ASSERT_TRUE(is_ok(moejit_plan_get_sizes(sim_.layer(), kSimTokens, &sizes)));
  moejit_call call = sim_.call();
  EXPECT_GT(sizes.deferred_bytes, 0);
  EXPECT_LT(sizes.deferred_bytes, call.deferred_bytes);
  call.workspace_bytes = sizes.workspace_bytes;
  call.saved_bytes = sizes.saved_bytes;
  call.deferred_bytes = sizes.deferred_bytes;
  EXPECT_TRUE(is_ok(moejit_layer_backward_data(sim_.layer(), &call)));
  EXPECT_TRUE(is_ok(moejit_layer_backward_weights(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, &call)));
  --call.deferred_bytes;
  const std::string wanted = std::to_string(sizes.deferred_bytes);
  const auto expect_refused = [&](moejit_error_code code) {
    EXPECT_TRUE(is_error(code, MOEJIT_ERROR_WORKSPACE_TOO_SMALL, "the deferred block", wanted));
  };
  constexpr auto kMode = MOEJIT_GRADIENT_OVERWRITE;
  expect_refused(moejit_layer_backward_data(sim_.layer(), &call));
  expect_refused(moejit_layer_backward_weights(sim_.layer(), kMode, &call));
  expect_refused(moejit_layer_backward(sim_.layer(), kMode, &call));
}

TEST_F(CApiBackwardHalves, TellTheLineThatDeferredBytesFollow) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  moejit_plan_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_TRUE(is_ok(moejit_plan_get_info(sim_.layer(), &info)));
  EXPECT_GT(info.deferred_bytes_per_token, 0);
  moejit_plan_sizes sizes = {};
  sizes.struct_size = sizeof(sizes);
  for (int64_t tokens = 0; tokens <= info.max_tokens; ++tokens) {
    ASSERT_TRUE(is_ok(moejit_plan_get_sizes(sim_.layer(), tokens, &sizes)));
    EXPECT_EQ(sizes.deferred_bytes,
              std::min(info.deferred_bytes,
                       info.deferred_fixed_bytes + tokens * info.deferred_bytes_per_token));
  }
  EXPECT_EQ(sizes.deferred_bytes, info.deferred_bytes);
}

TEST_F(CApiBackwardHalves, NeedTheDeferredBlockThatForwardDoesWithout) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  moejit_call call = sim_.call();
  call.deferred = nullptr;
  EXPECT_TRUE(is_ok(moejit_layer_forward(sim_.layer(), &call)));
  EXPECT_TRUE(is_error(moejit_layer_backward_data(sim_.layer(), &call),
                       MOEJIT_ERROR_TENSOR_MISMATCH, "the deferred block's address is null"));
  call = sim_.call();
  call.struct_size = offsetof(moejit_call, deferred);  // of a program that does not know it
  EXPECT_TRUE(is_ok(moejit_layer_forward(sim_.layer(), &call)));
  EXPECT_TRUE(is_error(moejit_layer_backward(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, &call),
                       MOEJIT_ERROR_WORKSPACE_TOO_SMALL, "the deferred block has 0 bytes"));
  call = sim_.call();
  call.deferred = call.saved;
  EXPECT_TRUE(is_error(moejit_layer_backward_data(sim_.layer(), &call),
                       MOEJIT_ERROR_TENSOR_MISMATCH, "overlaps", "the deferred block"));
}

TEST_F(CApiBackwardHalves, WantTheirOwnTensors) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  for (const char* name : {"dx", "dprobs", "dy"})
    EXPECT_TRUE(is_error(run_without(name, true), MOEJIT_ERROR_MISSING_TENSOR,
                         "tensor " + std::string(name)));
  ASSERT_TRUE(is_ok(run_data()));
  for (const char* name : {"dw1", "dw2", "dy"})
    EXPECT_TRUE(is_error(run_without(name, false), MOEJIT_ERROR_MISSING_TENSOR,
                         "tensor " + std::string(name)));
}

// Its shape tells how many tokens there are.
TEST_F(CApiBackwardHalves, DoNotReadDyAgain) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  ASSERT_TRUE(is_ok(run_data()));
  ASSERT_TRUE(is_ok(run_weights()));
  const auto wanted = gradients();
  void* const dy = std::exchange(sim_.tensor("dy").data, nullptr);
  EXPECT_TRUE(is_ok(run_weights()));
  sim_.tensor("dy").data = dy;
  EXPECT_TRUE(gradients() == wanted);
}

TEST_F(CApiBackwardHalves, DoNothingForGradientsThatNobodyAsksFor) {
  constexpr char kFrozen[] = R"({
    "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
    "splits_alignment": 16, "max_tokens": 16, "passes": ["forward", "backward"],
    "gradients": ["dprobs", "dx"], "backward_halves": true})";
  ASSERT_NO_FATAL_FAILURE(open(kFrozen));
  moejit_tensor_info info = {};
  info.struct_size = sizeof(info);
  EXPECT_TRUE(is_error(moejit_plan_find_tensor(sim_.layer(), "dw1", &info),
                       MOEJIT_ERROR_MISSING_TENSOR, "dw1"));
  EXPECT_TRUE(is_ok(run_data()));
  EXPECT_EQ(call_with("backward_weights").tensor_count, 0U);
  EXPECT_TRUE(is_ok(run_weights()));
}

TEST_F(CApiBackwardHalves, AreRefusedWithoutTheField) {
  ASSERT_NO_FATAL_FAILURE(open(kTinyLayer));
  for (const bool is_data : {true, false}) {
    EXPECT_TRUE(is_error(is_data ? run_data() : run_weights(), MOEJIT_ERROR_UNSUPPORTED,
                         "tiny has no halves"));
    EXPECT_NE(std::string_view(moejit_last_error()->hint).find("\"backward_halves\": true"),
              std::string_view::npos);
  }
}

TEST_F(CApiBackwardHalves, RefuseAnUnknownMode) {
  ASSERT_NO_FATAL_FAILURE(open(kHalves));
  EXPECT_TRUE(is_error(run_weights(static_cast<moejit_gradient_mode>(7)), MOEJIT_ERROR_UNSUPPORTED,
                       "has no call in an unknown mode"));
}

}  // namespace
}  // namespace moejit::testing
