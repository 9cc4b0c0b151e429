// SPDX-License-Identifier: Apache-2.0
//
// Every check of the simulator has a kernel in kernels/ that breaks its rule where BROKEN is 1 and
// keeps it where BROKEN is 0. The broken one must be caught, at a line marked FAULT; the other one
// must pass in whatever order its threads run.

#include "tests/sim/support/broken_kernel.h"

#include <numeric>

namespace moejit::runtime {
namespace {

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
  std::string text_ = read_kernel(GetParam().name + ".cu");
};

TEST_P(BrokenKernels, AreCaughtAtTheLineThatBreaksTheRule) {
  ASSERT_FALSE(text_.empty());
  int caught = 0;
  constexpr int kSeeds = 20;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto result = run(true, seed);
    if (result.has_value()) continue;
    ++caught;
    expect_report(result.error(), GetParam().wanted, text_);
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
                    BrokenKernel{"prefetch_out_of_bounds", "272 bytes at byte 0 of input", 32},
                    BrokenKernel{"prefetch_misaligned", "prefetches 64 bytes.*multiples of 16", 32},
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
        BrokenKernel{"async_copy_before_arrival", "asynchronous copy of thread", 64},
        BrokenKernel{"async_copy_twice", "overwrites 4 bytes.*asynchronous copy of thread"},
        BrokenKernel{"store_into_pending_copy", "asynchronous copy of thread", 16}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::runtime
