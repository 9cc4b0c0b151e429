// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_report.h"
#include "cli/commands/tuning_records.h"
#include "cli/report/bench_report.h"
#include "compiler/compiler.h"
#include "tests/support/matchers.h"
#include "tests/unit/tuning/tuning_records.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace moejit::cli {
namespace {

using compiler::GpuIdentity;
using compiler::Plan;
using compiler::Tuning;
using compiler::TuningRecord;
using testing::succeeded;

constexpr std::string_view kOneEighth = R"({"name": "one", "experts": 64, "local_experts": 8,
    "top_k": 8, "hidden": 1024, "intermediate": 512, "recipe": "fp8_flow", "max_tokens": 4096})";

Plan plan_with(const compiler::PlanOptions& options) {
  const auto layer = compiler::parse_layer(kOneEighth, "layer.json");
  EXPECT_TRUE(succeeded(layer));
  auto plan = compiler::plan_layer(*layer, {}, options);
  EXPECT_TRUE(succeeded(plan));
  return std::move(*plan);
}

// A record of an H200 with other choices for both GEMMs.
TuningRecord record_of_both() {
  TuningRecord record{.gpu = compiler::h200(), .entries = {}, .others = {}};
  for (const compiler::KernelPlan& kernel : plan_with({.list_candidates = true}).kernels)
    if (kernel.operation.starts_with("gemm_"))
      record.entries.push_back(compiler::entry(kernel.problem, kernel.candidates.back()));
  EXPECT_EQ(record.entries.size(), 2U);
  return record;
}

TuningUse use_on(const GpuIdentity& gpu, std::vector<TuningRecord> records) {
  const auto tuning = Tuning::make(std::move(records), gpu);
  EXPECT_TRUE(succeeded(tuning));
  return *tuning_use(plan_with({.tuning = &*tuning}), &*tuning);
}

TEST(TuningUseOfAPlan, IsNoneWithoutRecords) {
  EXPECT_FALSE(tuning_use(plan_with({}), nullptr));
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  add_tuning(json, std::nullopt);
  EXPECT_TRUE(json.empty());
}

TEST(TuningUseOfAPlan, CallsTheRecordOfAnotherGpuAHint) {
  const TuningUse use = use_on(compiler::h100(), {record_of_both()});
  EXPECT_EQ(use.recorded, 2);
  EXPECT_EQ(use.hints, 2);
  EXPECT_EQ(tuning_text(use),
            "2 of 5 kernels have choices that were measured on the NVIDIA H200 (132 SMs, 60 MiB of "
            "L2, 700 W); 2 of them are hints, since this is the NVIDIA H100 80GB HBM3 (132 SMs, 50 "
            "MiB of L2, 700 W)");
}

TEST(TuningUseOfAPlan, CallsTheRecordOfThisGpuNone) {
  const TuningUse use = use_on(compiler::h200(), {record_of_both()});
  EXPECT_EQ(use.recorded, 2);
  EXPECT_EQ(use.hints, 0);
  EXPECT_EQ(tuning_text(use),
            "2 of 5 kernels have choices that were measured on the NVIDIA H200 (132 SMs, 60 MiB of "
            "L2, 700 W)");
}

// What was measured on the GPU itself comes before a hint.
TEST(TuningUseOfAPlan, TellsBothGpusOfTwoRecords) {
  TuningRecord own = record_of_both();
  own.gpu = compiler::h100();
  own.entries.pop_back();
  const TuningUse use = use_on(compiler::h100(), {record_of_both(), own});
  EXPECT_EQ(use.recorded, 2);
  EXPECT_EQ(use.hints, 1);
  EXPECT_EQ(use.measured_on.size(), 2U);
}

TEST(TuningUseOfAPlan, CountsNoChoicesThatAreNotOffered) {
  TuningRecord record = record_of_both();
  record.entries.front().choices = {{"stages", 99}};
  EXPECT_EQ(use_on(compiler::h200(), {record}).recorded, 1);
  record.entries.clear();
  EXPECT_EQ(tuning_text(use_on(compiler::h200(), {record})),
            "none of 5 kernels that may be tuned has choices of a record");
}

TEST(TuningUseOfAPlan, IsInTheReportsOfBenchAndRun) {
  const Plan plan = plan_with({});
  const TuningUse use = use_on(compiler::h100(), {record_of_both()});
  BenchReport bench;
  bench.times.cool.resize(plan.kernels.size());
  bench.times.hot.resize(plan.kernels.size());
  EXPECT_FALSE(nlohmann::json::parse(bench_json(plan, bench)).contains("tuning"));
  EXPECT_EQ(bench_table(plan, bench).find("hints"), std::string::npos);
  bench.tuning = use;
  EXPECT_NE(bench_table(plan, bench).find("\n2 of 5 kernels have"), std::string::npos);
  RunReport run;
  run.tuning = use;
  for (const std::string& text : {bench_json(plan, bench), json_of(plan, run)}) {
    const auto tuning = nlohmann::json::parse(text)["tuning"];
    EXPECT_EQ(tuning["kernels"], 5);
    EXPECT_EQ(tuning["recorded"], 2);
    EXPECT_EQ(tuning["hints"], 2);
    EXPECT_EQ(tuning["measured_on"].size(), 1U);
    EXPECT_EQ(tuning["gpu"], "NVIDIA H100 80GB HBM3 (132 SMs, 50 MiB of L2, 700 W)");
  }
}

}  // namespace
}  // namespace moejit::cli
