// SPDX-License-Identifier: Apache-2.0
// Whether questions to tensor cores tell rules of addition apart, asked of simulated GPUs.
#include "runtime/check/check_tensor_cores.h"

#include "runtime/measure/tensor_core_sums.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/measure/kernel_compiles.h"

#include <gtest/gtest.h>
#include <map>

namespace moejit::check {
namespace {

using reference::TensorCoreRule;
using testing::succeeded;

constexpr TensorCoreRule kHopper{};
constexpr TensorCoreRule kBlackwell{.multiplies_in_f16 = true};
constexpr TensorCoreRule kAmpere{.multiplies_in_f16 = true, .products = 8, .fraction = 24};
// Each differs from Ampere's in one number.
constexpr TensorCoreRule kMoreProducts{.multiplies_in_f16 = true, .products = 16, .fraction = 24};
constexpr TensorCoreRule kMoreBits{.multiplies_in_f16 = true, .products = 8, .fraction = 25};

std::vector<TensorCoreCheck> ask(const std::string& name, std::vector<TensorCoreRule> rules) {
  std::vector<AdditionRule> named;
  for (const TensorCoreRule& rule : rules) named.push_back({"", rule});
  const auto target = compiler::parse_target(name);
  auto device = runtime::open_simulator({.target = *target});
  const auto engine = testing::make_test_engine();
  if (!succeeded(device) || !succeeded(engine)) return {};
  auto checks = check_tensor_cores(named, 1, **engine, **device);
  EXPECT_TRUE(succeeded(checks));
  return checks ? std::move(*checks) : std::vector<TensorCoreCheck>{};
}

// Adds up, for each format and rule, how many sums differ.
std::map<device::ProductFormats, std::vector<int64_t>> differing(
    const std::vector<TensorCoreCheck>& checks) {
  std::map<device::ProductFormats, std::vector<int64_t>> sums;
  for (const TensorCoreCheck& check : checks) {
    EXPECT_EQ(check.sums, 512) << check.question;
    auto& of_formats = sums[check.formats];
    of_formats.resize(check.differing.size());
    for (std::size_t i = 0; i < of_formats.size(); ++i) of_formats[i] += check.differing[i];
  }
  EXPECT_EQ(sums.size(), 4U);
  return sums;
}

TEST(CheckTensorCores, FindsTheRuleOfHopper) {
  for (const auto& [formats, counts] : differing(ask("sim", {kHopper, kBlackwell, kAmpere}))) {
    SCOPED_TRACE(formats_text(formats));
    EXPECT_EQ(counts[0], 0);
    // Both add bf16 alike.
    EXPECT_EQ(counts[1] > 0, formats != device::ProductFormats::kBf16);
    EXPECT_GT(counts[2], 0);
  }
}

TEST(CheckTensorCores, FindsTheRuleOfBlackwell) {
  for (const auto& [formats, counts] : differing(ask("sim:sm_120f", {kBlackwell, kHopper}))) {
    SCOPED_TRACE(formats_text(formats));
    EXPECT_EQ(counts[0], 0);
    EXPECT_EQ(counts[1] > 0, formats != device::ProductFormats::kBf16);
  }
}

// FP8 has sums of 25 bits that 24 would cut, and steps of 8 products whose order counts.
TEST(CheckTensorCores, TellsEachNumberOfAmperesRule) {
  const auto found = differing(ask("sim:sm_80", {kAmpere, kMoreProducts, kMoreBits, kHopper}));
  for (const auto& [formats, counts] : found) {
    SCOPED_TRACE(formats_text(formats));
    EXPECT_EQ(counts[0], 0);
    for (std::size_t rule = 1; rule < counts.size(); ++rule) EXPECT_GT(counts[rule], 0) << rule;
  }
}

TEST(AdditionRules, AreTheTargetsOwnAndThenEachOther) {
  const auto rules = addition_rules(*compiler::parse_target("sim:sm_89"));
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].target, "sim:sm_89");
  EXPECT_EQ(rules[0].rule.products, 8);
  EXPECT_EQ(rules[1].target, "cuda:sm_90a");
  EXPECT_FALSE(rules[1].rule.multiplies_in_f16);
  EXPECT_EQ(rules[2].target, "cuda:sm_100f");
}

TEST(TensorCoreSumsKernel, CompilesForEveryKindOfGpu) {
  for (const char* const target : {"cuda:sm_80", "cuda:sm_90a", "cuda:sm_120f"})
    testing::expect_compiles(measure::tensor_core_sums_source(*compiler::parse_target(target)));
}

}  // namespace
}  // namespace moejit::check
