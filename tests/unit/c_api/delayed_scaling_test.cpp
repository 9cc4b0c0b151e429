// SPDX-License-Identifier: Apache-2.0
// Scales that follow from the steps before, and the call that finds them, through the C interface.
#include "tests/unit/c_api/sim_layer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace moejit::testing {
namespace {

constexpr char kDelayed[] = R"({
  "name": "delayed", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "splits_alignment": 16, "max_tokens": 64, "recipe": "fp8_delayed", "amax_history_len": 3,
  "passes": ["forward", "backward"]})";
constexpr char kForwardOnly[] = R"({
  "name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128,
  "splits_alignment": 16, "max_tokens": 64, "passes": ["forward"]})";
constexpr std::size_t kExperts = 4;

class CApiDelayedScaling : public ::testing::Test {
 protected:
  moejit_error_code update(moejit_pass pass) {
    const moejit_call call = sim_.call();
    return moejit_layer_update_scales(sim_.layer(), pass, &call);
  }
  // Runs the calls of a step but the updates.
  void step() {
    const moejit_call call = sim_.call();
    ASSERT_TRUE(is_ok(moejit_layer_update_weights(sim_.layer(), &call)));
    ASSERT_TRUE(is_ok(moejit_layer_forward(sim_.layer(), &call)));
    ASSERT_TRUE(is_ok(moejit_layer_backward(sim_.layer(), MOEJIT_GRADIENT_OVERWRITE, &call)));
  }
  std::vector<float> floats(std::string_view name) {
    const auto bytes = sim_.read(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  moejit_tensor_info info(const char* name) {
    moejit_tensor_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_TRUE(is_ok(moejit_plan_find_tensor(sim_.layer(), name, &info)));
    return info;
  }

  SimLayer sim_;
};

TEST_F(CApiDelayedScaling, TellsTheStateAndItsCalls) {
  ASSERT_TRUE(is_ok(sim_.open(kDelayed)));
  const moejit_tensor_info history = info("fc1_amax_history"), scale = info("fc1_grad_scale");
  EXPECT_EQ(history.role, MOEJIT_ROLE_STATE);
  EXPECT_EQ(history.offset, -1);
  EXPECT_EQ(history.shape[0], 3);
  EXPECT_EQ(history.shape[1], 12);
  EXPECT_EQ(calls_with(sim_.layer(), "fc1_amax_history"),
            (std::set<std::string>{"update_weights", "update_forward_scales", "forward",
                                   "update_weights+forward"}));
  EXPECT_EQ(scale.role, MOEJIT_ROLE_STATE);
  EXPECT_EQ(calls_with(sim_.layer(), "fc1_grad_scale"),
            (std::set<std::string>{"update_backward_scales", "backward", "backward+add"}));
}

TEST_F(CApiDelayedScaling, FindsTheScalesOfOnePassFromWhatItsCallsRecorded) {
  ASSERT_TRUE(is_ok(sim_.open(kDelayed)));
  ASSERT_NO_FATAL_FAILURE(step());
  const std::vector<float> before = floats("fc1_amax_history");
  const std::vector<float> ones(3 * kExperts, 1.0F);
  EXPECT_EQ(floats("fc1_scale"), ones);
  ASSERT_TRUE(is_ok(update(MOEJIT_PASS_FORWARD)));
  std::vector<float> wanted = ones;
  for (std::size_t column = 0; column < wanted.size(); ++column)
    if (before[column] > 0.0F) wanted[column] = 448.0F / before[column];
  EXPECT_EQ(floats("fc1_scale"), wanted);
  EXPECT_NE(wanted, ones);
  EXPECT_EQ(floats("fc1_grad_scale"), std::vector<float>(2 * kExperts, 1.0F));
  const std::vector<float> history = floats("fc1_amax_history");
  EXPECT_TRUE(std::equal(history.end() - 3 * kExperts, history.end(), before.begin()));
  ASSERT_TRUE(is_ok(update(MOEJIT_PASS_FORWARD)));  // nothing was recorded since
  EXPECT_EQ(floats("fc1_amax_history"), history);
  ASSERT_TRUE(is_ok(update(MOEJIT_PASS_BACKWARD)));
  EXPECT_NE(floats("fc1_grad_scale"), std::vector<float>(2 * kExperts, 1.0F));
}

// Ranks that see other tokens have the same scales if they reduce row 0 before the update.
TEST_F(CApiDelayedScaling, TakesWhatTheCallerHasReduced) {
  ASSERT_TRUE(is_ok(sim_.open(kDelayed)));
  ASSERT_NO_FATAL_FAILURE(step());
  const std::vector<float> row(3 * kExperts, 3584.0F);
  ASSERT_TRUE(
      is_ok(moejit_device_copy_to_device(sim_.device(), sim_.tensor("fc2_amax_history").data,
                                         row.data(), static_cast<int64_t>(4 * row.size()))));
  ASSERT_TRUE(is_ok(update(MOEJIT_PASS_FORWARD)));
  EXPECT_EQ(floats("fc2_scale"), std::vector<float>(3 * kExperts, 0.125F));
}

TEST_F(CApiDelayedScaling, RefusesWrongCalls) {
  ASSERT_TRUE(is_ok(sim_.open(kDelayed)));
  EXPECT_TRUE(
      is_error(update(static_cast<moejit_pass>(2)), MOEJIT_ERROR_UNSUPPORTED, "unknown pass"));
  moejit_call call = sim_.call();
  std::vector<moejit_tensor> some(call.tensors, call.tensors + call.tensor_count);
  std::erase_if(some,
                [](const moejit_tensor& one) { return std::string_view(one.name) == "fc2_scale"; });
  call.tensors = some.data();
  call.tensor_count = some.size();
  EXPECT_TRUE(is_error(moejit_layer_update_scales(sim_.layer(), MOEJIT_PASS_FORWARD, &call),
                       MOEJIT_ERROR_MISSING_TENSOR, "fc2_scale"));
  EXPECT_TRUE(is_error(moejit_layer_forward(sim_.layer(), &call), MOEJIT_ERROR_MISSING_TENSOR,
                       "fc2_scale"));
  EXPECT_TRUE(is_ok(moejit_layer_update_scales(sim_.layer(), MOEJIT_PASS_BACKWARD, &call)));
  EXPECT_TRUE(is_error(moejit_layer_update_scales(nullptr, MOEJIT_PASS_FORWARD, &call),
                       MOEJIT_ERROR_INVALID_VALUE, "plan of"));
}

TEST_F(CApiDelayedScaling, DoesNothingWithRecipesWithoutAHistory) {
  ASSERT_TRUE(is_ok(sim_.open(kForwardOnly)));
  EXPECT_TRUE(is_ok(update(MOEJIT_PASS_FORWARD)));
  EXPECT_TRUE(is_error(update(MOEJIT_PASS_BACKWARD), MOEJIT_ERROR_UNSUPPORTED, "no backward pass"));
}

}  // namespace
}  // namespace moejit::testing
