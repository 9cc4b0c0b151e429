// SPDX-License-Identifier: Apache-2.0
// Figures made up so that what the report derives from them is known by hand.
#include "cli/commands/bench_report.h"

#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::LayerPlan;

// Two kernels of a layer with one expert: the quantise kernel of w1 and the first GEMM.
LayerPlan plan() {
  const compiler::Layer layer{.name = "made up",
                              .experts = 1,
                              .local_experts = 1,
                              .top_k = 1,
                              .hidden = 1024,
                              .intermediate = 512,
                              .recipe = compiler::Recipe::kFp8Flow,
                              .splits_alignment = 128,
                              .max_tokens = 1000,
                              .max_permuted_rows = 1024,
                              .fuse_activation = false};
  LayerPlan plan = plan_layer(layer, {}, {.measure_gemms = true}).value();
  std::erase_if(plan.kernels, [](const compiler::KernelPlan& kernel) {
    return kernel.operation != "quantize_w1" && kernel.operation != "gemm_fc1";
  });
  return plan;
}

BenchReport report() {
  BenchReport report{.run = {.command_line = "moejit bench layer.json --json",
                             .date = "2026-11-21T12:00:00Z",
                             .target = "cuda:sm_90a on NVIDIA H200",
                             .gpu = "NVIDIA H200",
                             .sm_count = 100,
                             .repeat = 20,
                             .hot_seconds = 0.35},
                     .rows = {.tokens = 1000, .routed = 1000, .padded = 1024, .routed_tokens = 990},
                     .copy_bytes_per_second = 4e12};
  // The GEMM multiplies 1000 x 1024 x 1024 = 1 048 576 000 times; 100 SMs at their peak do that in
  // 2560 cycles: 2 us at 1280 MHz.
  report.times.cool = {{.microseconds = 10.0, .megahertz = 1900.0},
                       {.microseconds = 4.0, .megahertz = 1280.0}};
  report.times.hot = {{.microseconds = 8.0, .megahertz = 1800.0, .launches = 7, .seconds = 0.4},
                      {.microseconds = 8.0, .megahertz = 640.0, .launches = 9, .seconds = 0.5}};
  report.forward = {.microseconds = 100.0, .megahertz = 1500.0};
  return report;
}

TEST(BenchReport, HasTimeClockAndUtilisationOfEachKernel) {
  const auto json = nlohmann::json::parse(bench_json(plan(), report()));
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
  const auto json = nlohmann::json::parse(bench_json(plan(), report()));
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
  const auto json = nlohmann::json::parse(bench_json(plan(), report()));
  EXPECT_EQ(json["command_line"], "moejit bench layer.json --json");
  EXPECT_EQ(json["date"], "2026-11-21T12:00:00Z");
  EXPECT_EQ(json["description"]["hidden"], 1024);
  EXPECT_EQ(json["gpu"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["gpu"]["sm_count"], 100);
  EXPECT_EQ(json["copy_bytes_per_second"], 4e12);
  EXPECT_EQ(json["tokens"], 1000);
  EXPECT_EQ(json["routed_tokens"], 990);
  EXPECT_EQ(json["routed_rows"], 1000);
  EXPECT_EQ(json["padded_rows"], 1024);
  EXPECT_EQ(json["hot_seconds"], 0.35);
  EXPECT_EQ(json["repeat"], 20);
  EXPECT_EQ(json["forward_hot_us"], 100.0);
  EXPECT_EQ(json["forward_hot_mhz"], 1500.0);
}

TEST(BenchReport, TellsHowExpertsWereDrawnWhereThereAreExperts) {
  BenchReport drawn = report();
  EXPECT_FALSE(nlohmann::json::parse(bench_json(plan(), drawn)).contains("routing"));
  drawn.routing = RandomRouting::kSkewed;
  EXPECT_EQ(nlohmann::json::parse(bench_json(plan(), drawn))["routing"], "skewed");
  EXPECT_EQ(bench_table(plan(), drawn).find("routing"), std::string::npos);
  drawn.routing = RandomRouting::kUniform;
  EXPECT_EQ(nlohmann::json::parse(bench_json(plan(), drawn))["routing"], "uniform");
  EXPECT_NE(bench_table(plan(), drawn).find("with pad rows, uniform routing\n"), std::string::npos);
}

TEST(BenchReport, HasWhatTheDriverToldAndNothingElse) {
  BenchReport watched = report();
  watched.run.cuda_version = "13.0";
  watched.run.settings = {.driver_version = "580.0.1", .power_limit_watts = 700.0};
  watched.times.hot[1].gpu = {
      .count = 30, .mean_watts = 650.0, .most_watts = 690.0, .throttle_reasons = {"sw_power_cap"}};
  const auto json = nlohmann::json::parse(bench_json(plan(), watched));
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
  const std::string table = bench_table(plan(), report());
  const auto line_of = [&](std::string_view operation) {
    const size_t at = table.find(operation);
    return table.substr(at, table.find('\n', at) - at);
  };
  EXPECT_NE(line_of("gemm_fc1").find("1280"), std::string::npos) << table;
  EXPECT_NE(line_of("gemm_fc1").find("524  0.500"), std::string::npos) << table;
  EXPECT_EQ(line_of("quantize_w1").find("0.500"), std::string::npos) << table;
  EXPECT_NE(table.find("forward pass, hot: 100.0 us at 1500 MHz"), std::string::npos) << table;
}

}  // namespace
}  // namespace moejit::cli
