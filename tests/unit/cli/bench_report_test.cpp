// SPDX-License-Identifier: Apache-2.0
// Figures made up so that what the report derives from them is known by hand.
#include "cli/report/bench_report.h"

#include "tests/support/matchers.h"
#include "tests/unit/cli/two_kernel_bench.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

BenchReport json_report() { return two_kernel_report("moejit bench layer.json --json"); }

TEST(BenchReport, HasTimeClockAndUtilisationOfEachKernel) {
  const auto json = nlohmann::json::parse(bench_json(two_kernel_plan(), json_report()));
  ASSERT_EQ(json["kernels"].size(), 2u);
  const auto& gemm = json["kernels"][1];
  EXPECT_EQ(gemm["operation"], "gemm_fc1");
  EXPECT_EQ(gemm["phase"], "forward");
  EXPECT_EQ(gemm["multiply_adds"], 1'048'576'000);
  EXPECT_EQ(gemm["cool_us"], 4.0);
  EXPECT_EQ(gemm["cool_mhz"], 1280.0);
  EXPECT_EQ(gemm["hot_us"], 8.0);
  EXPECT_EQ(gemm["hot_mhz"], 640.0);
  EXPECT_EQ(gemm["clock_of"], "kernel");
  EXPECT_EQ(gemm["hot_launches"], 9);
  EXPECT_DOUBLE_EQ(gemm["util_cool"], 0.5);
  EXPECT_DOUBLE_EQ(gemm["util_hot"], 0.5);
  EXPECT_DOUBLE_EQ(gemm["flops_cool"], 524.288e12);
  EXPECT_DOUBLE_EQ(gemm["flops_hot"], 262.144e12);
}

TEST(BenchReport, JudgesOnlyKernelsThatMultiplyByTheMatrixUnits) {
  const auto json = nlohmann::json::parse(bench_json(two_kernel_plan(), json_report()));
  const auto& quantize = json["kernels"][0];
  EXPECT_EQ(quantize["operation"], "quantize_w1");
  EXPECT_EQ(quantize["phase"], "weights");
  EXPECT_EQ(quantize["clock_of"], "probe");
  EXPECT_FALSE(quantize.contains("util_cool"));
  EXPECT_FALSE(quantize.contains("flops_hot"));
  // w1 [1, 1024, 1024]: 2 bytes read and 1 written for each element, a scale for each 128 x 128.
  const double bytes = 3.0 * 1024 * 1024 + 4 * 64;
  EXPECT_EQ(quantize["min_bytes"], bytes);
  EXPECT_DOUBLE_EQ(quantize["share_of_copy"], bytes / 10e-6 / 4e12);
}

TEST(BenchReport, SaysHowItWasMade) {
  const auto json = nlohmann::json::parse(bench_json(two_kernel_plan(), json_report()));
  EXPECT_EQ(json["command_line"], "moejit bench layer.json --json");
  EXPECT_EQ(json["date"], "2026-11-21T12:00:00Z");
  EXPECT_EQ(json["description"]["hidden"], 1024);
  EXPECT_EQ(json["gpu"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["gpu"]["sm_count"], 100);
  EXPECT_EQ(json["copy_bytes_per_second"], 4e12);
  EXPECT_EQ(json["read_bytes_per_second"], 4.25e12);
  EXPECT_EQ(json["routed_experts"], 1);
  EXPECT_EQ(json["tokens"], 1000);
  EXPECT_EQ(json["routed_tokens"], 990);
  EXPECT_EQ(json["routed_rows"], 1000);
  EXPECT_EQ(json["padded_rows"], 1024);
  EXPECT_EQ(json["hot_seconds"], 0.35);
  EXPECT_EQ(json["repeat"], 20);
  EXPECT_EQ(json["forward_hot_us"], 100.0);
  EXPECT_EQ(json["forward_hot_mhz"], 1500.0);
  EXPECT_EQ(json["forward_graph_us"], 90.0);
}

TEST(BenchReport, TellsHowExpertsWereDrawnWhereThereAreExperts) {
  BenchReport drawn = json_report();
  EXPECT_FALSE(nlohmann::json::parse(bench_json(two_kernel_plan(), drawn)).contains("routing"));
  drawn.random = trial::RandomInputs{};
  EXPECT_EQ(nlohmann::json::parse(bench_json(two_kernel_plan(), drawn))["routing"], "skewed");
  EXPECT_EQ(bench_table(two_kernel_plan(), drawn).find("routing"), std::string::npos);
  drawn.random = trial::RandomInputs{.routing = trial::RandomRouting::kUniform};
  EXPECT_EQ(nlohmann::json::parse(bench_json(two_kernel_plan(), drawn))["routing"], "uniform");
  EXPECT_NE(bench_table(two_kernel_plan(), drawn).find("with pad rows, uniform routing\n"),
            std::string::npos);
}

TEST(BenchReport, HasWhatTheDriverToldAndNothingElse) {
  BenchReport watched = json_report();
  watched.run.cuda_version = "13.0";
  watched.run.settings = {.driver_version = "580.0.1", .power_limit_watts = 700.0};
  watched.times.hot[1].gpu = {
      .count = 30, .mean_watts = 650.0, .most_watts = 690.0, .throttle_reasons = {"sw_power_cap"}};
  const auto json = nlohmann::json::parse(bench_json(two_kernel_plan(), watched));
  EXPECT_EQ(json["gpu"]["driver"], "580.0.1");
  EXPECT_EQ(json["gpu"]["cuda"], "13.0");
  EXPECT_EQ(json["gpu"]["power_limit_watts"], 700.0);
  EXPECT_FALSE(json["gpu"].contains("most_mhz"));
  const auto& gemm = json["kernels"][1];
  EXPECT_EQ(gemm["hot_watts"], 650.0);
  EXPECT_EQ(gemm["hot_most_watts"], 690.0);
  EXPECT_EQ(gemm["hot_throttle_reasons"], nlohmann::json({"sw_power_cap"}));
  EXPECT_FALSE(gemm.contains("hot_driver_mhz"));
  for (const auto& [name, value] : json["kernels"][0].items())
    EXPECT_TRUE(name.find("watts") == std::string::npos && name != "hot_throttle_reasons") << name;
}

TEST(BenchReport, IsATableWithClocksAndUtilisation) {
  const std::string table = bench_table(two_kernel_plan(), json_report());
  const auto line_of = [&](std::string_view operation) {
    const size_t at = table.find(operation);
    return table.substr(at, table.find('\n', at) - at);
  };
  EXPECT_NE(line_of("gemm_fc1").find("1280"), std::string::npos) << table;
  EXPECT_NE(line_of("gemm_fc1").find("524  0.500"), std::string::npos) << table;
  EXPECT_EQ(line_of("quantize_w1").find("0.500"), std::string::npos) << table;
  EXPECT_NE(table.find("forward pass, hot: 100.0 us at 1500 MHz"), std::string::npos) << table;
  EXPECT_NE(table.find("forward pass in a CUDA graph, hot: 90.0 us"), std::string::npos) << table;
}

}  // namespace
}  // namespace moejit::cli
