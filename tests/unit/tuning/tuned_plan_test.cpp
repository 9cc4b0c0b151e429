// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation.h"
#include "compiler/tuning.h"
#include "tests/unit/planner/planner_layers.h"
#include "tests/unit/tuning/tuning_records.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <map>

namespace moejit::compiler {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Layer training_layer() {
  Layer layer = dsv3_like_layer();
  layer.passes = {Pass::kForward, Pass::kBackward};
  layer.local_experts = 8;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

const KernelPlan& kernel_of(const Plan& plan, std::string_view operation) {
  return *std::ranges::find(plan.kernels, operation, &KernelPlan::operation);
}

// A record with one entry, for the H200.
Tuning tuning_with(const TuningEntry& entry) {
  return Tuning::make({{.gpu = h200(), .entries = {entry}}}, h200()).value();
}

// Returns choices of the kernel's candidates that are not the usual ones.
const Choices& others(const KernelPlan& kernel) { return kernel.candidates.back(); }

TEST(TunedPlan, WithoutRecordsIsWhatItWasAndNamesProblemsAndChoices) {
  const Plan plan = plan_of(training_layer());
  EXPECT_FALSE(plan.tuned_for);
  std::map<std::string, int> tuned;
  for (const KernelPlan& kernel : plan.kernels) {
    if (kernel.problem.empty()) continue;
    ++tuned[kernel.problem.substr(0, kernel.problem.find(' '))];
    EXPECT_FALSE(kernel.choices.empty());
    EXPECT_TRUE(kernel.candidates.empty());
    for (const std::string& reason : kernel.reasons) EXPECT_THAT(reason, Not(HasSubstr("record")));
  }
  // fc1, fc2 and two dgrads; two wgrads that overwrite and two that add; quantizing and moving x
  // and dy, and unpermute in both directions; the operands of wgrad.
  EXPECT_EQ(tuned, (std::map<std::string, int>{{"grouped_gemm", 4},
                                               {"contraction_grouped_gemm", 4},
                                               {"row_chain", 4},
                                               {"transpose", 2},
                                               {"gated_gradient", 1}}));
}

TEST(TunedPlan, ListsCandidatesTheUsualOnesFirst) {
  const Plan plan = plan_of(training_layer(), {.list_candidates = true});
  for (const KernelPlan& kernel : plan.kernels) {
    EXPECT_EQ(kernel.problem.empty(), kernel.candidates.empty()) << kernel.operation;
    if (kernel.problem.empty()) continue;
    EXPECT_EQ(kernel.candidates.front(), kernel.choices);
  }
}

TEST(TunedPlan, TakesTheChoicesOfARecordAndSaysSo) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  for (const KernelPlan& usual : listed.kernels) {
    if (usual.problem.empty()) continue;
    SCOPED_TRACE(usual.operation);
    const Tuning tuning = tuning_with(entry(usual.problem, others(usual)));
    const Plan plan = plan_of(training_layer(), {.tuning = &tuning});
    const KernelPlan& tuned = kernel_of(plan, usual.operation);
    EXPECT_EQ(tuned.choices, others(usual));
    EXPECT_NE(tuned.spec, usual.spec);
    EXPECT_NE(plan_digest(plan), plan_digest(listed));
    EXPECT_EQ(plan.tuned_for, h200());
    EXPECT_THAT(tuned.reasons.back(),
                StartsWith("tuned: " + to_string(others(usual)) + "; 10.0 %"));
    // The entry has no digest of this text.
    EXPECT_THAT(tuned.reasons.back(), EndsWith("since the kernel's text has changed since then"));
  }
}

TEST(TunedPlan, SaysNothingOfHintsIfTextAndGpuAreThoseOfTheRecord) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "gemm_fc2");
  TuningEntry measured = entry(usual.problem, others(usual));
  const Tuning first = tuning_with(measured);
  const Plan plan = plan_of(training_layer(), {.tuning = &first});
  measured.text_digest = measured_text_digest(kernel_of(plan, "gemm_fc2"), Target{}).value();
  const Tuning second = tuning_with(measured);
  const Plan again = plan_of(training_layer(), {.tuning = &second});
  EXPECT_THAT(kernel_of(again, "gemm_fc2").reasons.back(), Not(HasSubstr("hint")));
  EXPECT_EQ(plan_digest(again), plan_digest(plan));
}

// Quantizing x and dy is one problem, with one entry, whichever of the kernels was measured.
TEST(TunedPlan, SaysNothingOfHintsToAnotherKernelOfTheProblem) {
  Layer layer = training_layer();
  layer.dispatch = Dispatch::kFp8;
  const Plan listed = plan_of(layer, {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "quantize");
  ASSERT_EQ(kernel_of(listed, "quantize_dy").problem, usual.problem);
  TuningEntry measured = entry(usual.problem, others(usual));
  const Tuning first = tuning_with(measured);
  const Plan plan = plan_of(layer, {.tuning = &first});
  EXPECT_NE(emit_kernel(kernel_of(plan, "quantize"), Target{})->text,
            emit_kernel(kernel_of(plan, "quantize_dy"), Target{})->text);
  for (const char* const name : {"quantize", "quantize_dy"}) {
    measured.text_digest = measured_text_digest(kernel_of(plan, name), Target{}).value();
    const Tuning second = tuning_with(measured);
    const Plan again = plan_of(layer, {.tuning = &second});
    for (const char* const other : {"quantize", "quantize_dy"})
      EXPECT_THAT(kernel_of(again, other).reasons.back(), Not(HasSubstr("hint"))) << other;
  }
}

// Entries of earlier versions have the digest of the text with the kernel's name.
TEST(TunedPlan, KnowsTheTextOfAnEntryThatWasMeasuredUnderTheKernelsName) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "gemm_fc2");
  TuningEntry measured = entry(usual.problem, usual.choices);
  measured.text_digest = text_digest(emit_kernel(usual, Target{}).value()).value();
  EXPECT_NE(measured.text_digest, measured_text_digest(usual, Target{}).value());
  EXPECT_TRUE(is_measured_text(measured, usual, Target{}));
  KernelPlan other = usual;
  other.spec = kernel_of(listed, "gemm_fc1_dgrad").spec;
  EXPECT_FALSE(is_measured_text(measured, other, Target{}));
}

TEST(TunedPlan, KeepsTheUsualChoicesAndSaysWhy) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "gemm_fc2");
  const Tuning strange = tuning_with(entry(usual.problem, {{"stages", 99}}));
  const Plan plan = plan_of(training_layer(), {.tuning = &strange});
  EXPECT_EQ(kernel_of(plan, "gemm_fc2").spec, usual.spec);
  EXPECT_THAT(kernel_of(plan, "gemm_fc2").reasons.back(),
              StartsWith("usual choices: those of the record, stages=99, are not offered here"));
  EXPECT_EQ(kernel_of(plan, "gemm_fc1_dgrad").reasons.back(),
            "usual choices: no tuning record has this problem");
  EXPECT_EQ(plan_digest(plan), plan_digest(listed));
}

TEST(TunedPlan, MarksWhatAnotherGpuMeasuredAsAHint) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "gemm_fc2");
  const Tuning tuning =
      Tuning::make({{.gpu = h100(), .entries = {entry(usual.problem, others(usual))}}}, h200())
          .value();
  const Plan plan = plan_of(training_layer(), {.tuning = &tuning});
  EXPECT_THAT(kernel_of(plan, "gemm_fc2").reasons.back(),
              HasSubstr("a hint, since that is another GPU"));
}

// A chain that permutes says how many rows L2 is asked for only if it asks.
TEST(TunedPlan, GivesTheReasonsOfTheTunedSpec) {
  Layer layer = training_layer();
  layer.recipe = Recipe::kBf16;
  layer.experts = layer.local_experts;
  const Plan listed = plan_of(layer, {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "permute_pad");
  ASSERT_GT(usual.choices.at("rows_per_burst"), 0);
  EXPECT_THAT(usual.reasons.back(), StartsWith("L2 is asked for "));
  Choices without = usual.choices;
  without["rows_per_burst"] = 0;
  const Tuning tuning = tuning_with(entry(usual.problem, without));
  const Plan plan = plan_of(layer, {.tuning = &tuning});
  for (const std::string& reason : kernel_of(plan, "permute_pad").reasons)
    EXPECT_THAT(reason, Not(HasSubstr("L2 is asked for ")));
}

// A record of a layer serves the operation alone: experts of other ranks leave it an eighth of the
// rows.
TEST(TunedPlan, OfAChainTakesTheRecordOfALayerToo) {
  const Plan listed = plan_of(training_layer(), {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "unpermute");
  const OperationDescription operation{"unpermute",
                                       {{"max_tokens", 4096},
                                        {"top_k", 8},
                                        {"local_experts", 8},
                                        {"max_permuted_rows", 1024},
                                        {"columns", 7168}}};
  const Tuning tuning = tuning_with(entry(usual.problem, others(usual)));
  const auto plan = plan_operation(operation, Target{}, {.tuning = &tuning});
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->kernels.front().problem, usual.problem);
  EXPECT_EQ(plan->kernels.front().choices, others(usual));
}

// An operation of the same GEMM has the same problem, so that one record serves both.
// The layer has all experts on this rank, since an operation knows of no others.
TEST(TunedPlan, OfAnOperationTakesTheRecordOfALayer) {
  Layer layer = training_layer();
  layer.experts = layer.local_experts;
  const Plan listed = plan_of(layer, {.list_candidates = true});
  const KernelPlan& usual = kernel_of(listed, "gemm_fc2");
  const OperationDescription operation{
      "grouped_gemm",
      {{"local_experts", 8}, {"max_permuted_rows", 4096 * 8}, {"n", 7168}, {"k", 2048}}};
  const Tuning tuning = tuning_with(entry(usual.problem, others(usual)));
  const auto plan = plan_operation(operation, Target{}, {.tuning = &tuning});
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->kernels.front().choices, others(usual));
  EXPECT_EQ(plan->tuned_for, h200());
}

}  // namespace
}  // namespace moejit::compiler
