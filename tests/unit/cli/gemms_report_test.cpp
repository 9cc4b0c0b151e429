// SPDX-License-Identifier: Apache-2.0
// Figures made up so that what the report derives from them is known by hand.
#include "cli/report/gemms_report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

compiler::KernelPlan kernel_of(const measure::GemmCase& gemm) {
  return compiler::plan_operation(operation_of(gemm, 1024), {}).value().kernels.front();
}

// 1000 real rows x 1024 x 1024 = 1 048 576 000 multiply-adds; 100 SMs at their peak do that in 2560
// cycles: 2 us at 1280 MHz.
std::vector<GemmResult> results() {
  const measure::GemmCase gemm{.name = "some",
                               .groups = 2,
                               .rows_per_group = 500,
                               .splits_alignment = 16,
                               .n = 1024,
                               .k = 1024};
  return {{.gemm = gemm,
           .kernel = kernel_of(gemm),
           .rows = {.routed = 1000, .padded = 1024},
           .compared = 16384,
           .cool = {.microseconds = 4.0, .megahertz = 1280.0},
           .hot = {.microseconds = 8.0,
                   .megahertz = 640.0,
                   .launches = 9,
                   .seconds = 0.5,
                   .gpu = {.count = 3, .mean_watts = 650.0}}}};
}

// 1000 real columns x 1024 x 1024, the same number of multiply-adds, and of D 2 x 1024 x 1024
// numbers of 4 bytes, read and written.
GemmResult gradient() {
  const measure::GemmCase gemm{.name = "gradient",
                               .operation = measure::GemmOperation::kContractionGroupedGemm,
                               .groups = 2,
                               .n = 1024,
                               .columns_per_group = 500,
                               .rows = 1024,
                               .output = compiler::GradientOutput::kF32Add};
  GemmResult result = results().front();
  result.gemm = gemm;
  result.kernel = kernel_of(gemm);
  return result;
}

BenchRun run() {
  return {.command_line = "moejit bench --gemms some.json",
          .date = "2026-11-21T12:00:00Z",
          .target = "cuda:sm_90a on NVIDIA H200",
          .gpu = "NVIDIA H200",
          .sm_count = 100,
          .repeat = 20,
          .hot_seconds = 0.35};
}

TEST(GemmsReport, CountsRealRowsAlone) {
  const auto json = gemms_json(results(), run());
  const auto& gemm = json["gemms"][0];
  EXPECT_EQ(gemm["name"], "some");
  EXPECT_EQ(gemm["operation"], "grouped_gemm");
  EXPECT_EQ(gemm["rows_per_group"], 500);
  EXPECT_EQ(gemm["real_rows"], 1000);
  EXPECT_EQ(gemm["padded_rows"], 1024);
  EXPECT_EQ(gemm["multiply_adds"], 1'048'576'000);
  EXPECT_DOUBLE_EQ(gemm["util_cool"], 0.5);
  EXPECT_DOUBLE_EQ(gemm["util_hot"], 0.5);
  EXPECT_DOUBLE_EQ(gemm["flops_cool"], 524.288e12);
  EXPECT_DOUBLE_EQ(gemm["flops_hot"], 262.144e12);
  EXPECT_EQ(gemm["equal_elements"], 16384);
  EXPECT_EQ(gemm["hot_watts"], 650.0);
}

TEST(GemmsReport, CountsColumnsAndTheTrafficOfAGradient) {
  const auto json = gemms_json({gradient()}, run());
  const auto& gemm = json["gemms"][0];
  EXPECT_EQ(gemm["operation"], "contraction_grouped_gemm");
  EXPECT_EQ(gemm["columns_per_group"], 500);
  EXPECT_EQ(gemm["output"], "f32_add");
  EXPECT_EQ(gemm["real_columns"], 1000);
  EXPECT_EQ(gemm["padded_columns"], 1024);
  EXPECT_DOUBLE_EQ(gemm["util_hot"], 0.5);
  // Operands, eight steps' scales of 16 tiles, and D twice.
  const double bytes = 1000.0 * 2048 + 4 * 16 * 8 + 2.0 * 4 * 2 * 1024 * 1024;
  EXPECT_DOUBLE_EQ(gemm["min_bytes"], bytes);
  EXPECT_DOUBLE_EQ(gemm["bytes_per_second_hot"], bytes / 8e-6);
}

TEST(GemmsReport, SaysHowItWasMade) {
  const auto json = gemms_json(results(), run());
  EXPECT_EQ(json["command_line"], "moejit bench --gemms some.json");
  EXPECT_EQ(json["date"], "2026-11-21T12:00:00Z");
  EXPECT_EQ(json["gpu"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["hot_seconds"], 0.35);
}

TEST(GemmsReport, IsATableWithALineForEachCase) {
  const std::string table = gemms_table(results(), run());
  const size_t at = table.find("some");
  ASSERT_NE(at, std::string::npos);
  const std::string line = table.substr(at, table.find('\n', at) - at);
  for (const char* cell :
       {"1000", "16384", "4.0 us", "1280", "524", "0.500", "8.0 us", "650", "262", "656"})
    EXPECT_NE(line.find(cell), std::string::npos) << cell << " in " << table;
}

}  // namespace
}  // namespace moejit::cli
