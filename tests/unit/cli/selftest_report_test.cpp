// SPDX-License-Identifier: Apache-2.0
// What a selftest says of a GPU that differs from what was expected of it.
#include "cli/commands/selftest_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using device::ProductFormats;

SelftestReport report() {
  SelftestReport report{.target = "cuda:sm_80"};
  report.rules = {{"cuda:sm_80", {}}, {"cuda:sm_90a", {}}};
  report.tensor_cores = {
      {.formats = ProductFormats::kE4m3, .question = "cancel", .sums = 512, .differing = {0, 9}},
      {.formats = ProductFormats::kBf16, .question = "cancel", .sums = 512, .differing = {0, 0}},
      {.formats = ProductFormats::kBf16, .question = "least", .sums = 512, .differing = {0, 7}}};
  report.layers = {{.recipe = "bf16",
                    .checks = {{.tensor = "y", .has_passed = true, .compared = 40},
                               {.tensor = "dx", .has_passed = true, .compared = 60}},
                    .failure = {}}};
  return report;
}

TEST(SelftestReport, PassesWhereTheTargetsOwnRuleGivesEveryBit) {
  EXPECT_TRUE(failures_of(report()).empty());
  const auto json = selftest_json(report());
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(json["layers"][0]["compared"], 100);
  const std::string table = selftest_table(report(), 0);
  EXPECT_NE(table.find("bf16 x bf16  1024"), std::string::npos) << table;
  EXPECT_NE(table.find("selftest passed"), std::string::npos) << table;
}

TEST(SelftestReport, CountsSumsThatFollowAnotherRule) {
  SelftestReport other = report();
  other.tensor_cores[2].differing = {3, 0};
  EXPECT_EQ(failures_of(other),
            (std::vector<std::string>{
                "3 of 1024 sums of bf16 x bf16 differ from the rule of cuda:sm_80"}));
  EXPECT_NE(selftest_table(other, 0).find("selftest failed"), std::string::npos);
}

TEST(SelftestReport, NamesTensorsThatDifferAndWhatDidNotRun) {
  SelftestReport other = report();
  other.layers[0].checks[1] = {.tensor = "dx",
                               .verdict = "2 of 60 differ",
                               .message = "dx[0, 3] is 1, wanted 2",
                               .compared = 60,
                               .differing = 2};
  const Error failure{Stage::kCompile, ErrorCode::kCompilerMissing, "no NVRTC", "", ""};
  other.layers.push_back({.recipe = "nvfp4", .checks = {}, .failure = failure});
  other.gemms.failure = failure;
  EXPECT_EQ(failures_of(other),
            (std::vector<std::string>{"tensor \"dx\" of the layer of bf16 differs from the "
                                      "reference: dx[0, 3] is 1, wanted 2",
                                      "the layer of nvfp4 did not run: no NVRTC",
                                      "not all GEMMs were measured: no NVRTC"}));
  const auto json = selftest_json(other);
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["layers"][0]["failed"], (std::vector<std::string>{"dx"}));
  EXPECT_EQ(json["layers"][0]["differing"], 2);
  EXPECT_EQ(json["layers"][1]["error"]["message"], "no NVRTC");
}

}  // namespace
}  // namespace moejit::cli
