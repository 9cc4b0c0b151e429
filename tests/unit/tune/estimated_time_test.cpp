// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/support/file.h"
#include "runtime/tune/tune_problem.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {
namespace {

using compiler::KernelPlan;
using testing::succeeded;

// A training layer of eight experts, as docs/performance has it.
constexpr std::string_view kLayerOfTimes = R"({
  "name": "one", "experts": 8, "local_experts": 8, "top_k": 8, "hidden": 7168,
  "intermediate": 2048, "activation": "swiglu", "dtype": "bf16", "recipe": "fp8_flow",
  "splits_alignment": 128, "max_tokens": 4096, "passes": ["forward", "backward"]})";

TEST(EstimatedTime, IsTheLargerOneOfBytesAndMultiplyAdds) {
  // 4.8 TB/s x 0.85 moves 4.08 MB in a microsecond; 132 SMs x 1830 MHz x 2048 x 0.55 multiply-adds
  // of bf16 are 272.09 million.
  KernelPlan kernel{.arguments = {{"a", "x"}, {"b", "w1"}}};
  kernel.min_bytes = 40'800'000;
  EXPECT_DOUBLE_EQ(estimated_us(kernel), 10.0);
  kernel.multiply_adds = 5'441'863'680;
  EXPECT_DOUBLE_EQ(estimated_us(kernel), 20.0);
  kernel.min_bytes *= 3;
  EXPECT_DOUBLE_EQ(estimated_us(kernel), 30.0);
}

TEST(EstimatedTime, OfE4m3OperandsIsHalfOfBf16s) {
  KernelPlan kernel{.arguments = {{"a", "x"}, {"a_scale_inv", "s"}, {"b", "w1"}}};
  kernel.multiply_adds = 5'441'863'680;
  EXPECT_DOUBLE_EQ(estimated_us(kernel), 10.0);
}

TEST(EstimatedTime, CountsTheRowsThatARankOfSeveralHasInTheMean) {
  const auto kernel_of = [](int64_t experts) {
    KernelPlan kernel{
        .spec = compiler::GroupedGemmSpec{.local_experts = 8, .section_n = 4096, .k = 7168}};
    kernel.bounds = {
        .max_tokens = 4096, .top_k = 2, .groups = 8, .max_permuted_rows = 8192, .experts = experts};
    return kernel;
  };
  EXPECT_DOUBLE_EQ(estimated_us(kernel_of(32), 4096), 0.25 * estimated_us(kernel_of(8), 4096));
  EXPECT_DOUBLE_EQ(estimated_us(kernel_of(8), 1024), 0.25 * estimated_us(kernel_of(8), 4096));
}

// A kernel and its time of many launches.
struct Measured {
  std::string operation;
  double us;
};

// Returns kernels that differ in what limits them, with their times on an H200.
std::vector<Measured> measured() {
  constexpr std::array<std::string_view, 9> kOperations = {"gemm_fc1_activation_quantize",
                                                           "gemm_fc1_wgrad",
                                                           "gemm_fc1_dgrad",
                                                           "gemm_fc2",
                                                           "gemm_fc2_wgrad",
                                                           "quantize_w1",
                                                           "activation_backward_quantize_transpose",
                                                           "unpermute",
                                                           "quantize_permute_pad"};
  const auto text = read_text_file(std::string(MOEJIT_SOURCE_DIR) +
                                   "/docs/performance/h200-dsv3-8-training.json");
  std::vector<Measured> found;
  if (!text) return found;
  const auto bench = nlohmann::json::parse(*text);
  for (const auto& kernel : bench.at("kernels")) {
    const auto operation = kernel.at("operation").get<std::string>();
    if (std::ranges::find(kOperations, operation) != kOperations.end())
      found.push_back({operation, kernel.at("hot_us").get<double>()});
  }
  return found;
}

TEST(EstimatedTime, OrdersKernelsAsTheirTimesOnAnH200Do) {
  const auto layer = compiler::parse_layer(kLayerOfTimes, "layer.json");
  ASSERT_TRUE(succeeded(layer));
  const auto plan = compiler::plan_layer(*layer, {}, {});
  ASSERT_TRUE(succeeded(plan));
  const auto us_of = [&](std::string_view operation) {
    const auto kernel = std::ranges::find(plan->kernels, operation, &KernelPlan::operation);
    if (kernel == plan->kernels.end()) return 0.0;
    return estimated_us(*kernel, layer->max_tokens);
  };
  const std::vector<Measured> kernels = measured();
  ASSERT_EQ(kernels.size(), 9u);
  for (const Measured& one : kernels) {
    EXPECT_NEAR(us_of(one.operation), one.us, 0.35 * one.us) << one.operation;
    for (const Measured& other : kernels) {
      if (one.us <= 1.15 * other.us) continue;
      EXPECT_GT(us_of(one.operation), us_of(other.operation))
          << one.operation << " " << other.operation;
    }
  }
}

TEST(EstimatedTime, TellsSharesWithTwoDigits) {
  EXPECT_EQ(share_text(1.0), "100 %");
  EXPECT_EQ(share_text(0.234), "23 %");
  EXPECT_EQ(share_text(0.0423), "4.2 %");
  EXPECT_EQ(share_text(0.0996), "10 %");
  EXPECT_EQ(share_text(0.0004), "under 0.1 %");
}

}  // namespace
}  // namespace moejit::tune
