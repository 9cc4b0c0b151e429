// SPDX-License-Identifier: Apache-2.0
// How far checks let derivatives of a user's formula be off, near a choice and away from it.
#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "runtime/check/check_plan.h"
#include "runtime/reference/number_formats.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>

namespace moejit::check {
namespace {

using compiler::DType;
using runtime::make_tensor;
using runtime::TensorMap;

constexpr int64_t kColumns = 16;
constexpr std::string_view kOperation = R"json({
  "operation": "activation_backward", "local_experts": 1, "max_permuted_rows": 16,
  "intermediate": 16, "activation": {"expression": "min(gate, silu(up))"}
})json";
constexpr std::string_view kRun[] = {"run"};

// One row of gate and up, and its gradients in bf16, where all gradients of the activation are 1.
// silu(up) is up / 2 plus up^2 / 4: in the first column no rounding tells it from gate. In others
// gate is the smaller one.
class SlopeErrors : public ::testing::Test {
 protected:
  SlopeErrors() : gate_(kColumns, 0.25F), up_(kColumns, 1.5F) {
    gate_.front() = 0x1p-26F;
    up_.front() = 0x1p-25F;
  }

  // Returns whether the gradients pass the check.
  bool passes(const std::vector<float>& gate_gradient, const std::vector<float>& up_gradient) {
    const auto described = compiler::parse_operation(kOperation, "test");
    EXPECT_TRUE(testing::succeeded(described));
    const auto plan = compiler::plan_operation(*described, compiler::Target{});
    EXPECT_TRUE(testing::succeeded(plan));
    std::vector<float> input = gate_, output = gate_gradient;
    input.insert(input.end(), up_.begin(), up_.end());
    output.insert(output.end(), up_gradient.begin(), up_gradient.end());
    float sum = 0.0F;  // of min(gate, silu(up)), which is gate or hardly less
    for (const float gate : gate_) sum += gate;
    const TensorMap inputs = {
        {"input", make_tensor(DType::kBF16, {1, 2 * kColumns}, reference::bf16_from_floats(input))},
        {"gradient", make_tensor(DType::kBF16, {1, kColumns},
                                 reference::bf16_from_floats(std::vector<float>(kColumns, 1.0F)))},
        {"probs", make_tensor(DType::kF32, {1}, std::vector<float>{1.0F})},
        {"counts", make_tensor(DType::kI32, {1}, std::vector<int32_t>{1})},
        {"offs", make_tensor(DType::kI32, {2}, std::vector<int32_t>{0, 1})}};
    const TensorMap results = {
        {"output",
         make_tensor(DType::kBF16, {1, 2 * kColumns}, reference::bf16_from_floats(output))},
        {"output_dprobs", make_tensor(DType::kF32, {1, 1}, std::vector<float>{sum})}};
    const std::vector<TensorCheck> checks = check_plan(*plan, kRun, inputs, results);
    EXPECT_EQ(checks.size(), 2U);
    bool has_passed = true;
    for (const TensorCheck& check : checks) has_passed = has_passed && check.has_passed;
    return has_passed;
  }

  std::vector<float> gate_, up_;
};

TEST_F(SlopeErrors, ReachBothBranchesWhereRoundingDecides) {
  std::vector<float> of_gate(kColumns, 1.0F), of_up(kColumns, 0.0F);
  EXPECT_TRUE(passes(of_gate, of_up));
  of_gate.front() = 0.0F;
  of_up.front() = 0.5F;  // the slope of silu near 0
  EXPECT_TRUE(passes(of_gate, of_up));
}

TEST_F(SlopeErrors, ReachOneBranchElsewhere) {
  std::vector<float> of_gate(kColumns, 1.0F), of_up(kColumns, 0.0F);
  of_gate[1] = 0.0F;
  EXPECT_FALSE(passes(of_gate, of_up));
  of_gate[1] = 1.0F;
  of_up[1] = 0.5F;
  EXPECT_FALSE(passes(of_gate, of_up));
}

}  // namespace
}  // namespace moejit::check
