// SPDX-License-Identifier: Apache-2.0
//
// Every check of the simulator has a kernel in kernels/ that breaks its rule where BROKEN is 1 and
// keeps it where BROKEN is 0. The broken one must be caught, at a line marked FAULT; the other one
// must pass in whatever order its threads run.

#include "tests/sim/support/sim_kernel.h"

#include <cctype>
#include <fstream>
#include <iterator>
#include <numeric>
#include <regex>

namespace moejit::runtime {
namespace {

struct BrokenKernel {
  std::string name;    // of the file
  std::string wanted;  // in the report, a regular expression
  int32_t threads = 32;
  int64_t ctas = 3;
  // Races between CTAs, and orders that only some seeds try: caught by most seeds, not all.
  bool depends_on_order = false;
  bool output_is_written = true;
};

std::ostream& operator<<(std::ostream& out, const BrokenKernel& kernel) {
  return out << kernel.name;
}

std::string read_kernel(const std::string& name) {
  std::ifstream file(std::string(MOEJIT_SOURCE_DIR) + "/tests/sim/kernels/" + name + ".cu");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string variant(const std::string& text, bool broken) {
  return std::string("#define BROKEN ") + (broken ? "1" : "0") + "\n#line 1 \"test_kernel.cu\"\n" +
         text;
}

// Is "test_kernel.cu:<line>" of the message the number of a line marked FAULT?
bool names_a_marked_line(const std::string& message, const std::string& text) {
  int32_t line = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++line;
    const bool marked = text.substr(begin, end - begin).find("// FAULT") != std::string::npos;
    const std::string place = "test_kernel.cu:" + std::to_string(line);
    const std::size_t found = message.find(place);
    const bool whole =
        found != std::string::npos &&
        (found + place.size() == message.size() ||
         std::isdigit(static_cast<unsigned char>(message[found + place.size()])) == 0);
    if (marked && whole) return true;
    begin = end + 1;
  }
  return false;
}

class BrokenKernels : public testing::TestWithParam<BrokenKernel> {
 protected:
  Result<void> run(bool broken, uint64_t seed) const {
    std::vector<int32_t> input(64);
    std::iota(input.begin(), input.end(), 1);
    const auto outputs = static_cast<std::size_t>(64 * GetParam().ctas);
    std::vector<SimBuffer> buffers{buffer_of("input", input, false),
                                   buffer_of("output", std::vector<int32_t>(outputs))};
    buffers[1].written = GetParam().output_is_written;
    return run_test_kernel(variant(text_, broken),
                           {.ctas = GetParam().ctas,
                            .threads = GetParam().threads,
                            .shared_bytes = 1024,
                            .seed = seed,
                            .workers = 2},
                           buffers);
  }
  std::string text_ = read_kernel(GetParam().name);
};

TEST_P(BrokenKernels, AreCaughtAtTheLineThatBreaksTheRule) {
  ASSERT_FALSE(text_.empty());
  int caught = 0;
  constexpr int kSeeds = 20;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto result = run(true, seed);
    if (result.has_value()) continue;
    ++caught;
    const Error& error = result.error();
    ASSERT_EQ(error.code, ErrorCode::kSimulatorFault) << to_string(error);
    EXPECT_EQ(error.stage, Stage::kLaunch);
    EXPECT_TRUE(std::regex_search(error.message, std::regex(GetParam().wanted))) << error.message;
    EXPECT_NE(error.message.find("kernel test_kernel, CTA "), std::string::npos) << error.message;
    EXPECT_TRUE(names_a_marked_line(error.message, text_)) << error.message;
  }
  EXPECT_GE(caught, GetParam().depends_on_order ? kSeeds / 2 : kSeeds);
}

TEST_P(BrokenKernels, PassInEveryOrderOnceTheyAreCorrect) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run(false, seed);
    ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << to_string(result.error());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, BrokenKernels,
    testing::Values(BrokenKernel{"uninitialised_shared_read", "reads 4 bytes.*never written", 64},
                    BrokenKernel{"shared_out_of_bounds",
                                 "writes 4 bytes at offset 1[0-9]+ of shared memory", 64},
                    BrokenKernel{"misaligned_shared", "offset [0-9]+ .*not a multiple of 4", 64},
                    BrokenKernel{"shared_race_read_after_write", "no barrier since", 64},
                    BrokenKernel{"shared_race_write_after_read", "no barrier since", 64},
                    BrokenKernel{"shared_race_write_after_write", "was written by thread", 64},
                    BrokenKernel{"shared_race_in_a_warp", "was written by thread", 64},
                    BrokenKernel{"atomic_race", "no barrier since", 64},
                    BrokenKernel{"load_matrices_race", "was written by thread"},
                    BrokenKernel{"global_out_of_bounds", "reads 4 bytes at byte 256 of input", 64},
                    BrokenKernel{"misaligned_global", "not a multiple of 8", 8},
                    BrokenKernel{"write_to_read_only", "of input, which this kernel may only read"},
                    BrokenKernel{"uninitialised_global_read", "of output that nothing has written",
                                 32, 3, false, false},
                    BrokenKernel{"global_race_between_ctas",
                                 "of output that another CTA wrote in this launch", 64},
                    BrokenKernel{"global_race_in_a_cta",
                                 "that thread [0-9]+ wrote with no barrier since", 64},
                    BrokenKernel{"global_read_of_another_cta",
                                 "that another CTA wrote in this launch", 32, 4, true}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Barriers, BrokenKernels,
    testing::Values(
        BrokenKernel{"unmatched_barrier",
                     "dead-lock: 32 threads .* wait in sync_(cta|named).*, 32 threads", 64},
        BrokenKernel{"barrier_skipped_by_a_lane",
                     "dead-lock: .*26 of 96 threads|all lanes must execute the same one", 96},
        BrokenKernel{"barriers_in_one_warp", "all lanes must execute the same one", 64},
        BrokenKernel{"named_barrier_dead_lock",
                     "dead-lock: 96 threads .* barrier 3, which wants 128 threads", 128},
        BrokenKernel{"named_barrier_counts_differ", "waits for (32|64) threads at barrier 2", 64},
        BrokenKernel{"named_barrier_race", "no barrier since|never written|dead-lock", 128},
        BrokenKernel{"shuffle_without_a_lane", "wait in shuffle_xor"},
        BrokenKernel{"shuffle_after_exit", "lane 8 of its warp has exited", 64},
        BrokenKernel{"different_collectives", "all lanes must execute the same instruction"}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    AsyncCopies, BrokenKernels,
    testing::Values(
        BrokenKernel{"async_copy_before_wait", "asynchronous copy of thread", 16},
        BrokenKernel{"async_copy_without_commit", "asynchronous copy of thread", 16},
        BrokenKernel{"async_copy_without_barrier",
                     "written by thread|asynchronous copy|never written", 16},
        BrokenKernel{"async_copy_slot_reused", "asynchronous copy of thread|no barrier since", 16},
        BrokenKernel{"async_copy_twice", "overwrites 4 bytes.*asynchronous copy of thread"},
        BrokenKernel{"store_into_pending_copy", "asynchronous copy of thread", 16}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::runtime
