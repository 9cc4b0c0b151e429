// SPDX-License-Identifier: Apache-2.0
//
// Launches that overlap with the kernel before. As in broken_kernels_test.cpp, each rule has a
// kernel that breaks it where BROKEN is 1.

#include "tests/sim/support/broken_kernel.h"
#include "tests/support/matchers.h"

#include <numeric>
#include <regex>

namespace moejit::runtime {
namespace {

class BrokenOverlaps : public ::testing::TestWithParam<BrokenKernel> {
 protected:
  Result<void> run(bool broken, bool overlaps) const {
    std::vector<int32_t> numbers(64);
    std::iota(numbers.begin(), numbers.end(), 1);
    std::vector<SimBuffer> buffers{buffer_of("written", numbers, false), buffer_of("read", numbers),
                                   buffer_of("neither", numbers, false)};
    buffers[0].before = SimBuffer::Before::kWrites;
    buffers[1].before = SimBuffer::Before::kReads;
    return run_test_kernel(
        variant(text_, broken),
        {.ctas = GetParam().ctas, .threads = GetParam().threads, .overlaps = overlaps}, buffers);
  }
  std::string text_ = read_kernel("overlap/" + GetParam().name + ".cu");
};

TEST_P(BrokenOverlaps, AreCaught) {
  ASSERT_FALSE(text_.empty());
  const auto result = run(true, true);
  ASSERT_FALSE(result);
  if (text_.find("// FAULT") != std::string::npos)
    return expect_report(result.error(), GetParam().wanted, text_);
  EXPECT_TRUE(std::regex_search(result.error().message, std::regex(GetParam().wanted)))
      << result.error().message;
}

TEST_P(BrokenOverlaps, PassOnceTheyAreCorrect) {
  EXPECT_TRUE(testing::succeeded(run(false, true)));
}

// A launch that does not overlap finds the kernel before complete.
TEST_P(BrokenOverlaps, PassWhereNothingOverlaps) {
  EXPECT_TRUE(testing::succeeded(run(true, false)));
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, BrokenOverlaps,
    ::testing::Values(
        BrokenKernel{"read_before_wait",
                     "reads 4 bytes at byte [0-9]+ of written, which the kernel before writes", 64},
        BrokenKernel{"write_before_wait",
                     "writes 4 bytes at byte [0-9]+ of read, which the kernel before reads", 64},
        BrokenKernel{"wait_of_another_thread", "of (written|read), which the kernel before", 64},
        BrokenKernel{"copy_before_wait",
                     "reads 16 bytes at byte [0-9]+ of written, which the kernel before writes",
                     64},
        BrokenKernel{"start_before_wait", "lets the kernel behind begin", 64},
        BrokenKernel{"end_without_wait", "CTA 1: ends, and no thread of it has called", 64}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::runtime
