// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/tuning/tuning_records.h"

#include <gtest/gtest.h>
#include <random>

namespace moejit::compiler {
namespace {

// Returns a record with some of ten problems, whose entries differ in what decides between them.
TuningRecord random_record(std::mt19937_64& random) {
  const auto below = [&](uint64_t bound) { return random() % bound; };
  TuningRecord record{.gpu = h200()};
  if (below(4) == 0) record.gpu.power_limit_watts = 690;
  if (below(4) == 0) record.gpu.l2_bytes = 0;
  for (int problem = 0; problem < 10; ++problem) {
    if (below(2) == 0) continue;
    TuningEntry made =
        entry("p" + std::to_string(problem), {{"stages", static_cast<int64_t>(below(3))}},
              static_cast<int64_t>(6 + below(2)));
    made.ratio_high += 0.01 * static_cast<double>(below(2));
    made.date = below(2) == 0 ? "2026-12-02" : "2026-12-03";
    record.entries.push_back(std::move(made));
  }
  if (below(3) == 0)
    record.others.push_back(
        {"note", {.kind = JsonKind::kNumber, .text = below(2) == 0 ? "1" : "2"}});
  return record;
}

std::string merged(const TuningRecord& one, const TuningRecord& other) {
  const auto record = merge(one, other);
  return record ? to_json(*record) : to_string(record.error());
}

TEST(MergeTuning, IsCommutativeAssociativeAndIdempotent) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const TuningRecord a = random_record(random), b = random_record(random),
                       c = random_record(random);
    EXPECT_EQ(merged(a, b), merged(b, a));
    EXPECT_EQ(merged(merge(a, b).value(), c), merged(a, merge(b, c).value()));
    EXPECT_EQ(merged(a, a), to_json(a));
  }
}

// Returns which of two entries of one problem a merge keeps.
TuningEntry kept_entry(const TuningEntry& one, const TuningEntry& other) {
  return merge({.gpu = h200(), .entries = {one}}, {.gpu = h200(), .entries = {other}})
      .value()
      .entries.at(0);
}

TEST(MergeTuning, KeepsTheEntryOfMoreRoundsThenOfTheNarrowerIntervalThenTheNewerOne) {
  const TuningEntry few = entry("p", {{"stages", 3}}, 8);
  TuningEntry many = entry("p", {{"stages", 4}}, 12);
  many.ratio_high = 0.95;
  EXPECT_EQ(kept_entry(few, many).choices, many.choices);
  TuningEntry wide = few;
  wide.choices = {{"stages", 5}};
  wide.ratio_low = 0.5;
  EXPECT_EQ(kept_entry(few, wide).choices, few.choices);
  TuningEntry newer = few;
  newer.choices = {{"stages", 6}};
  newer.date = "2027-01-01";
  EXPECT_EQ(kept_entry(few, newer).choices, newer.choices);
}

TEST(MergeTuning, RefusesRecordsOfTwoGpus) {
  const auto record = merge({.gpu = h200()}, {.gpu = h100()});
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().message,
            "one record is of the NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W), the other of the "
            "NVIDIA H100 80GB HBM3 (132 SMs, 50 MiB of L2, 700 W)");
}

TEST(GpuIdentity, TakesPowerLimitsThatRoundToTheSame25Watts) {
  GpuIdentity other = h200();
  other.power_limit_watts = 689;
  EXPECT_TRUE(is_same_gpu(h200(), other));
  other.power_limit_watts = 650;
  EXPECT_FALSE(is_same_gpu(h200(), other));
  other.power_limit_watts = 0;  // not known
  EXPECT_TRUE(is_same_gpu(h200(), other));
}

TEST(GpuIdentity, OfTheFamilyHasTheNumberOfSms) {
  EXPECT_FALSE(is_same_gpu(h200(), h100()));
  EXPECT_TRUE(is_same_family(h200(), h100()));
  GpuIdentity h20 = h100();
  h20.sm_count = 78;
  EXPECT_FALSE(is_same_family(h20, h100()));
}

TEST(Tuning, PrefersWhatWasMeasuredOnTheGpuToHints) {
  const TuningRecord own{.gpu = h200(), .entries = {entry("p", {{"stages", 3}})}};
  const TuningRecord other{.gpu = h100(),
                           .entries = {entry("p", {{"stages", 4}}), entry("q", {{"stages", 5}})}};
  const auto tuning = Tuning::make({other, own}, h200());
  ASSERT_TRUE(tuning);
  const auto p = tuning->find("p"), q = tuning->find("q");
  ASSERT_TRUE(p && q);
  EXPECT_EQ(p->entry->choices, (Choices{{"stages", 3}}));
  EXPECT_FALSE(p->is_hint);
  EXPECT_EQ(q->entry->choices, (Choices{{"stages", 5}}));
  EXPECT_TRUE(q->is_hint);
  EXPECT_EQ(q->measured_on->name, h100().name);
  EXPECT_FALSE(tuning->find("r"));
}

TEST(Tuning, LeavesOutRecordsOfAnotherFamily) {
  TuningRecord record{.gpu = h100(), .entries = {entry("p", {})}};
  record.gpu.sm_count = 78;
  const auto tuning = Tuning::make({record}, h200());
  ASSERT_TRUE(tuning);
  EXPECT_FALSE(tuning->find("p"));
}

TEST(Tuning, WithoutAGpuIsForTheRecordsOfOne) {
  EXPECT_EQ(Tuning::make({{.gpu = h100()}})->gpu(), h100());
  const auto two = Tuning::make({{.gpu = h200()}, {.gpu = h100()}});
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().message,
            "the tuning records are of two GPUs, the NVIDIA H200 (132 SMs, 60 MiB of L2, 700 W) "
            "and the NVIDIA H100 80GB HBM3 (132 SMs, 50 MiB of L2, 700 W), and nothing says for "
            "which the plan is");
}

}  // namespace
}  // namespace moejit::compiler
