// SPDX-License-Identifier: Apache-2.0
// Which rows a row chain asks L2 for, and when: results do not tell.
#include "tests/sim/support/sim_kernel.h"

namespace moejit::runtime {
namespace {

constexpr int32_t kThreads = 128, kRowsPerBurst = 48, kSegmentsPerRow = 7, kStepSegments = 16;
constexpr int32_t kRows = 170;  // three bursts and a part of one
constexpr int32_t kStepsPerBurst = kRowsPerBurst * kSegmentsPerRow / kStepSegments;

// A CTA has a step. 1 + the row that each thread asks for, or 0.
const std::string kAsk = R"(
#include "moejit_device/stage/burst.cuh"
struct Params { uint32_t* output; };
struct Load { static constexpr int32_t kRowBytes = 16; };
struct Walk { static constexpr uint32_t kPerRow = 7, kStepSegments = 16; };
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const auto output = global(params.output) + (128 * cta_index() + thread_index());
  store(output, 0u);
  Bursts<Load, Walk, 48>::visit(cta_index(), thread_index(), 170, [&](int64_t row) {
    store(output, static_cast<uint32_t>(row + 1));
  });
}
)";

TEST(Bursts, AskOnceForEveryRowOfTheNextBurstInTheFirstQuarterOfOne) {
  constexpr int32_t kBursts = 3;
  std::vector<SimBuffer> buffers{
      buffer_of("output", std::vector<uint32_t>(kBursts * kStepsPerBurst * kThreads))};
  const auto result = run_test_kernel(
      kAsk, {.ctas = kBursts * kStepsPerBurst, .threads = kThreads, .workers = 2}, buffers);
  ASSERT_TRUE(result.has_value()) << to_string(result.error());

  std::vector<int32_t> asked(kRows);
  const std::vector<uint32_t> rows = values_of<uint32_t>(buffers[0]);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    const auto step = static_cast<int32_t>(i) / kThreads;
    const auto row = static_cast<int32_t>(rows[i]) - 1;
    ASSERT_LT(row, std::ssize(asked));
    ++asked[static_cast<size_t>(row)];
    EXPECT_EQ(row / kRowsPerBurst, step / kStepsPerBurst + 1);
    EXPECT_LE(step % kStepsPerBurst, kStepsPerBurst / 4);
  }
  for (int32_t row = 0; row < std::ssize(asked); ++row)
    EXPECT_EQ(asked[static_cast<size_t>(row)], row < kRowsPerBurst ? 0 : 1) << row;
}

}  // namespace
}  // namespace moejit::runtime
