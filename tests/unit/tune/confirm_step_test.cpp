// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/confirm_step.h"

#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "runtime/tune/decision/tuned_records.h"
#include "runtime/tune/device_measurer.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::tune {
namespace {

using testing::succeeded;
using testing::TestDir;

constexpr std::string_view kLayerToConfirm = R"({
  "name": "one", "experts": 8, "local_experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128,
  "activation": "swiglu", "dtype": "bf16", "recipe": "fp8_flow", "splits_alignment": 16,
  "max_tokens": 64})";

// Steps that take as long as the test wants.
class ScriptedSteps final : public Measurer {
 public:
  std::function<double(std::span<const StepChoice>)> ratio = [](auto) { return 1.0; };
  int32_t timed = 0;
  bool fails = false;

  Result<void> open_step(std::size_t) override {
    if (fails) return fail(Stage::kLaunch, ErrorCode::kOutOfMemory, "no memory");
    return {};
  }
  Result<double> heat(double, double) override { return 1000.0; }
  Result<TimedBlocks> time_step(std::span<const StepChoice> tuned, int64_t) override {
    const double us = 1000.0 * ratio(tuned) * (1.0 + 1e-4 * (++timed % 5));
    return TimedBlocks{.microseconds = {1000.0, us, us, 1000.0}, .megahertz = {}, .watts = {}};
  }

  Result<void> prefetch() override { return {}; }
  Result<void> compile(std::size_t) override { return {}; }
  Result<void> open(std::size_t) override { return {}; }
  Result<int64_t> make(int32_t) override { return 0; }
  Result<TimedBlocks> time(std::span<const int32_t>, int64_t) override { return TimedBlocks{}; }
  std::optional<Fault> loss() const override { return std::nullopt; }
  bool is_usable() const override { return true; }
};

class ConfirmStep : public ::testing::Test {
 protected:
  void SetUp() override { set_up(kLayerToConfirm, 64); }

  void set_up(std::string_view json, int64_t tokens) {
    const auto layer = compiler::parse_layer(json, "layer.json");
    ASSERT_TRUE(succeeded(layer));
    subjects_.layers = {{*layer, tokens, 0}};
    const auto plan = compiler::plan_layer(*layer, device_.target, {.list_candidates = true});
    ASSERT_TRUE(succeeded(plan));
    for (const compiler::KernelPlan& kernel : plan->kernels)
      if (kernel.problem.starts_with("grouped_gemm ")) write_race(kernel);
  }

  // Writes a race that the kernel's second candidate wins by 10 %.
  void write_race(const compiler::KernelPlan& kernel) {
    auto journal = open_journal();
    ASSERT_TRUE(succeeded(journal->append(kernel.problem, CandidateList{kernel.candidates})));
    for (int32_t round = 1; round <= 8; ++round) {
      const auto add = [&](Place place, std::size_t i, double us) {
        const Block block{.round = round,
                          .place = place,
                          .choices = kernel.candidates[i],
                          .microseconds = us,
                          .megahertz = {},
                          .watts = {}};
        ASSERT_TRUE(succeeded(journal->append(kernel.problem, block)));
      };
      add(Place::kDefaultFirst, 0, 100.0);
      for (std::size_t i = 1; i < kernel.candidates.size(); ++i)
        add(Place::kCandidate, i, i == 1 ? 90.0 : 150.0);
      add(Place::kDefaultLast, 0, 100.0);
    }
  }

  Result<JournalWriter> open_journal() {
    return JournalWriter::open(
        path_, {.id = std::to_string(++sessions_), .gpu = device_.gpu, .context = "{}"});
  }

  void confirm() {
    auto journal = open_journal();
    ASSERT_TRUE(succeeded(journal));
    const RaceSite site{.measurer = steps_, .journal = *journal, .times = {}, .stops = stops_};
    ASSERT_TRUE(succeeded(confirm_steps(subjects_, device_, site, path_, observer_)));
  }

  compiler::TuningRecord record() const {
    const auto journal = read_journal(path_);
    EXPECT_TRUE(succeeded(journal));
    const auto records = tuned_records(*journal);
    EXPECT_TRUE(succeeded(records));
    return records->front();
  }

  TestDir folder_;
  std::string path_ = (folder_ / "journal").string();
  const MeasuredDevice device_{.target = *compiler::parse_target("sim"),
                               .gpu = compiler::gpu_to_json({.name = "simulator"}),
                               .description = {},
                               .cuda_version = {}};
  TuneSubjects subjects_;
  TuneObserver observer_;
  ScriptedSteps steps_;
  std::function<bool()> stops_ = [] { return false; };
  int32_t sessions_ = 0;
};

TEST_F(ConfirmStep, TellsWhatAFasterStepGained) {
  EXPECT_EQ(record().entries.size(), 2U);
  steps_.ratio = [](auto tuned) { return tuned.size() == 2 ? 0.97 : 1.0; };
  confirm();
  EXPECT_EQ(steps_.timed, 6);
  ASSERT_EQ(record().entries.size(), 2U);
  ASSERT_EQ(record().steps.size(), 1U);
  EXPECT_NEAR(record().steps[0].ratio, 0.97, 0.001);
  EXPECT_EQ(record().steps[0].rounds, 6);
  // Nothing is left to do.
  confirm();
  EXPECT_EQ(steps_.timed, 6);
}

TEST_F(ConfirmStep, DropsChoicesThatSlowIt) {
  steps_.ratio = [](auto) { return 1.03; };
  confirm();
  EXPECT_TRUE(record().entries.empty());
  EXPECT_TRUE(record().steps.empty());
}

TEST_F(ConfirmStep, KeepsTheChoiceThatIsFasterAlone) {
  steps_.ratio = [](auto tuned) { return tuned.size() == 2 ? 1.03 : 0.98; };
  confirm();
  EXPECT_EQ(record().entries.size(), 1U);
  EXPECT_EQ(record().steps.size(), 1U);
}

TEST_F(ConfirmStep, GoesOnWhereItWasStopped) {
  steps_.ratio = [](auto) { return 0.97; };
  stops_ = [this] { return steps_.timed == 4; };
  confirm();
  EXPECT_TRUE(record().steps.empty());
  stops_ = [] { return false; };
  confirm();
  EXPECT_EQ(steps_.timed, 6);
  EXPECT_EQ(record().steps.size(), 1U);
}

TEST_F(ConfirmStep, LeavesTheChoicesOfAStepThatCannotRun) {
  steps_.fails = true;
  confirm();
  EXPECT_EQ(record().entries.size(), 2U);
  EXPECT_TRUE(record().steps.empty());
}

TEST_F(ConfirmStep, RunsOnADeviceWithEachSet) {
  trial::OpenedTarget target;
  auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  target.device = std::move(*device);
  auto engine = testing::make_test_engine();
  ASSERT_TRUE(succeeded(engine));
  const auto measurer = DeviceMeasurer::create(std::move(target), std::move(*engine), subjects_);
  ASSERT_TRUE(succeeded(measurer));
  ASSERT_TRUE(succeeded((*measurer)->open_step(0)));
  const auto us = (*measurer)->heat(0.0, 0.0);
  ASSERT_TRUE(succeeded(us));
  EXPECT_GT(*us, 0.0);
  std::vector<StepChoice> tuned;
  for (const compiler::TuningEntry& entry : record().entries)
    tuned.push_back({.problem = entry.problem, .choices = entry.choices});
  for (const std::size_t count : {2, 1}) {
    const auto timed = (*measurer)->time_step(std::span(tuned).first(count), 1);
    ASSERT_TRUE(succeeded(timed));
    EXPECT_EQ(timed->microseconds.size(), 4U);
  }
}

// A layer of a group, whose races are of the problems that a rank's plan names.
class ConfirmStepOfAGroup : public ConfirmStep {
 protected:
  static constexpr std::string_view kGroup = R"({
    "name": "ranks", "experts": 16, "top_k": 2, "hidden": 256, "intermediate": 128,
    "recipe": "fp8_flow", "splits_alignment": 16, "max_tokens": 32,
    "expert_parallel": {"ranks": 2}})";
  void SetUp() override { set_up(kGroup, 20); }

  const compiler::Layer& layer() const { return subjects_.layers.front().layer; }
};

TEST_F(ConfirmStepOfAGroup, MakesARecordThatAllRanksPlanWith) {
  steps_.ratio = [](auto tuned) { return tuned.size() == 2 ? 0.97 : 1.0; };
  confirm();
  const compiler::TuningRecord made = record();
  ASSERT_EQ(made.entries.size(), 2U);
  ASSERT_EQ(made.steps.size(), 1U);
  const auto usual = plan_layer(layer(), device_.target);
  ASSERT_TRUE(succeeded(usual));
  EXPECT_NE(made.steps[0].step.find("layer=ranks tokens=20 ranks=2 passes=forward"),
            std::string::npos);
  EXPECT_NE(made.steps[0].step.find("plan_digest=" + plan_digest(*usual)), std::string::npos);
  const auto tuning = compiler::Tuning::make({made});
  ASSERT_TRUE(succeeded(tuning));
  for (const int64_t rank : {0, 1}) {
    const auto plan = plan_layer(layer(), device_.target, {.tuning = &*tuning, .rank = rank});
    ASSERT_TRUE(succeeded(plan));
    for (const compiler::TuningEntry& entry : made.entries) {
      const auto kernel =
          std::ranges::find(plan->kernels, entry.problem, &compiler::KernelPlan::problem);
      ASSERT_NE(kernel, plan->kernels.end()) << entry.problem;
      EXPECT_EQ(kernel->choices, entry.choices);
      EXPECT_EQ(kernel->reasons.back().find("tuned: " + compiler::to_string(entry.choices) +
                                            "; 10.0 % less"),
                0U)
          << kernel->reasons.back();
    }
  }
}

TEST_F(ConfirmStepOfAGroup, RunsARankWithoutTheExchange) {
  trial::OpenedTarget target;
  auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  target.device = std::move(*device);
  auto engine = testing::make_test_engine();
  ASSERT_TRUE(succeeded(engine));
  const auto measurer = DeviceMeasurer::create(std::move(target), std::move(*engine), subjects_);
  ASSERT_TRUE(succeeded(measurer));
  ASSERT_TRUE(succeeded((*measurer)->open_step(0)));
  std::vector<StepChoice> tuned;
  for (const compiler::TuningEntry& entry : record().entries)
    tuned.push_back({.problem = entry.problem, .choices = entry.choices});
  ASSERT_EQ(tuned.size(), 2U);
  const auto timed = (*measurer)->time_step(tuned, 1);
  ASSERT_TRUE(succeeded(timed));
  EXPECT_EQ(timed->microseconds.size(), 4U);
}

}  // namespace
}  // namespace moejit::tune
