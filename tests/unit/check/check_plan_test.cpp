// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_plan.h"

#include "compiler/compiler.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/reference_layer.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::check {
namespace {

using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;

// A layer whose results come from the reference itself, to be damaged by the tests.
constexpr std::string_view kCalls[] = {"update_weights", "forward"};

class CheckPlan : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 6, kE = 3, kK = 2, kH = 144, kI = 80;

  void SetUp() override { compute(1); }

  // `sharing` scale blocks share a scale.
  void compute(int32_t sharing) {
    layer_ = {.experts = kE, .local_experts = kE, .top_k = kK, .hidden = kH, .intermediate = kI};
    layer_.splits_alignment = 16;
    layer_.max_tokens = kTokens;
    layer_.max_permuted_rows = 64;
    layer_.scale_sharing_k = sharing;
    const reference::LayerShape shape{kE, kK, kH, kI, 16, 64, sharing};
    const reference::LayerInputs in = reference::random_inputs(shape, kTokens, 1);
    const reference::ReferenceForward out = reference::reference_forward(shape, in);
    const int64_t p = out.offs.back(), hb = 2, ib = 1;
    inputs_ = {{"x", make_tensor(DType::kBF16, {kTokens, kH}, in.x)},
               {"topk_ids", make_tensor(DType::kI32, {kTokens, kK}, in.topk_ids)},
               {"topk_probs", make_tensor(DType::kF32, {kTokens, kK}, in.topk_probs)},
               {"w1", make_tensor(DType::kBF16, {kE, 2 * kI, kH}, in.w1)},
               {"w2", make_tensor(DType::kBF16, {kE, kH, kI}, in.w2)}};
    results_ = {
        {"x_q", make_tensor(DType::kF8E4M3, {kTokens, kH}, out.x_q)},
        {"x_scale_inv", make_tensor(DType::kF32, {kTokens, hb}, out.x_scale_inv)},
        {"counts", make_tensor(DType::kI32, {kE}, out.counts)},
        {"offs", make_tensor(DType::kI32, {kE + 1}, out.offs)},
        {"row_map", make_tensor(DType::kI32, {kTokens, kK}, out.row_map)},
        {"permuted_q", make_tensor(DType::kF8E4M3, {p, kH}, out.permuted_q)},
        {"permuted_scale_inv", make_tensor(DType::kF32, {p, hb}, out.permuted_scale_inv)},
        {"permuted_probs", make_tensor(DType::kF32, {p}, out.permuted_probs)},
        {"w1_q", make_tensor(DType::kF8E4M3, {kE, 2 * kI, kH}, out.w1_q)},
        {"w1_scale_inv", make_tensor(DType::kF32, {kE, 2 * ib, hb}, out.w1_scale_inv)},
        {"w2_q", make_tensor(DType::kF8E4M3, {kE, kH, kI}, out.w2_q)},
        {"w2_scale_inv", make_tensor(DType::kF32, {kE, hb, ib}, out.w2_scale_inv)},
        {"h1", make_tensor(DType::kBF16, {p, 2 * kI}, out.h1)},
        {"act_q", make_tensor(DType::kF8E4M3, {p, kI}, out.act_q)},
        {"act_scale_inv", make_tensor(DType::kF32, {p, ib}, out.act_scale_inv)},
        {"h2", make_tensor(DType::kBF16, {p, kH}, out.h2)},
        {"y", make_tensor(DType::kBF16, {kTokens, kH}, out.y)},
    };
  }

  std::vector<TensorCheck> checks() const {
    const auto plan = plan_layer(layer_, compiler::Target{}, {.keep_intermediates = true});
    EXPECT_TRUE(plan);
    return check_plan(*plan, kCalls, inputs_, results_);
  }
  std::vector<std::string> failed() const {
    std::vector<std::string> names;
    for (const TensorCheck& check : checks())
      if (!check.has_passed) names.push_back(check.tensor);
    return names;
  }

  compiler::Layer layer_;
  TensorMap inputs_;
  TensorMap results_;
};

TEST_F(CheckPlan, PassesWhatTheReferenceComputes) {
  EXPECT_EQ(checks().size(), results_.size());
  EXPECT_TRUE(failed().empty());
}

TEST_F(CheckPlan, PassesBlocksThatShareTheirScalesOnlyWhereTheLayerSaysSo) {
  compute(2);
  EXPECT_TRUE(failed().empty());
  layer_.scale_sharing_k = 1;
  EXPECT_FALSE(failed().empty());
}

TEST_F(CheckPlan, FindsADamagedByteInEveryTensor) {
  for (auto& [name, tensor] : results_) {
    // The highest byte of a value of the first row, which is no pad row.
    const size_t place = static_cast<size_t>(compiler::size_bytes(tensor.dtype)) - 1;
    const std::byte kept = tensor.bytes[place];
    tensor.bytes[place] ^= std::byte{0x41};
    const std::vector<std::string> names = failed();
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
    tensor.bytes[place] = kept;
  }
}

TEST_F(CheckPlan, BlamesOnlyTheKernelThatDiffers) {
  // One code off in x_q: permute_pad then copies what was never there, later kernels are fine.
  results_.at("x_q").bytes[3] ^= std::byte{0x01};
  const std::vector<std::string> names = failed();
  EXPECT_EQ(std::ranges::find(names, "h1"), names.end());
  EXPECT_EQ(std::ranges::find(names, "y"), names.end());
}

TEST_F(CheckPlan, OfATensorsWritersSaysWhatTheWholeOneSaysOfIt) {
  const auto plan = plan_layer(layer_, compiler::Target{}, {.keep_intermediates = true});
  ASSERT_TRUE(plan);
  const auto said_of = [](const std::string& name, const std::vector<TensorCheck>& checks) {
    const auto check = std::ranges::find(checks, name, &TensorCheck::tensor);
    return check == checks.end() ? "nothing" : check->verdict + "; " + check->message;
  };
  for (auto& [name, tensor] : results_) {
    const size_t place = static_cast<size_t>(compiler::size_bytes(tensor.dtype)) - 1;
    const std::byte kept = tensor.bytes[place];
    tensor.bytes[place] ^= std::byte{0x41};
    const auto of_writers = check_plan(*plan, kCalls, inputs_, results_, name);
    EXPECT_EQ(said_of(name, of_writers), said_of(name, checks())) << name;
    for (const TensorCheck& check : of_writers)
      EXPECT_TRUE(std::ranges::any_of(plan->kernels,
                                      [&](const compiler::KernelPlan& kernel) {
                                        return writes(kernel, name) && writes(kernel, check.tensor);
                                      }))
          << name << ", " << check.tensor;
    tensor.bytes[place] = kept;
  }
}

TEST_F(CheckPlan, LeavesOutWeightsThatCameQuantized) {
  inputs_.erase("w1");
  inputs_.erase("w2");
  EXPECT_EQ(checks().size(), results_.size() - 4);
  EXPECT_TRUE(failed().empty());
}

}  // namespace
}  // namespace moejit::check
