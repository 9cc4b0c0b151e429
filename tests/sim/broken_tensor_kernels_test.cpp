// SPDX-License-Identifier: Apache-2.0
//
// As broken_kernels_test.cpp, for what Hopper does beside its threads: tensor copies, mbarriers,
// WGMMA, registers of warpgroups.

#include "tests/sim/support/broken_kernel.h"
#include "tests/sim/support/matrices.h"

namespace moejit::runtime {
namespace {

class BrokenTensorKernels : public testing::TestWithParam<BrokenKernel> {
 protected:
  Result<void> run(bool broken, uint64_t seed, int32_t workers = 2) const {
    using compiler::DType;
    const int64_t ctas = GetParam().ctas;
    const Matrix a = random_integers(64, 128, 1);
    const Matrix b = random_integers(64, 128, 2);
    std::vector<SimBuffer> buffers{
        {"a", encoded(a, DType::kF8E4M3), false},
        {"b", encoded(b, DType::kF8E4M3), false},
        buffer_of("d", std::vector<float>(static_cast<std::size_t>(2048 * ctas)))};
    buffers[2].written = false;
    return run_test_kernel(read_kernel("tensor/tiles.cuh") + variant(text_, broken),
                           {.ctas = ctas,
                            .threads = GetParam().threads,
                            .shared_bytes = 25 * 1024,
                            .seed = seed,
                            .workers = workers,
                            .maps = {{0, box_of(DType::kF8E4M3, 128, 64, 128, 64, true)},
                                     {1, box_of(DType::kF8E4M3, 128, 64, 128, 64, true)},
                                     {0, box_of(DType::kF8E4M3, 128, 64, 128, 64, false)},
                                     {2, box_of(DType::kF32, 32, 64 * ctas, 32, 64, true)}}},
                           buffers);
  }
  std::string text_ = read_kernel("tensor/" + GetParam().name + ".cu");
};

TEST_P(BrokenTensorKernels, AreCaughtAtTheLineThatBreaksTheRule) {
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

TEST_P(BrokenTensorKernels, AreReportedAlikeForASeed) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto first = run(true, seed, 1);
    const auto second = run(true, seed, 3);
    ASSERT_FALSE(first.has_value() || second.has_value());
    EXPECT_EQ(first.error().message, second.error().message);
  }
}

TEST_P(BrokenTensorKernels, PassInEveryOrderOnceTheyAreCorrect) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto result = run(false, seed);
    ASSERT_TRUE(result.has_value()) << "seed " << seed << ": " << to_string(result.error());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Copies, BrokenTensorKernels,
    testing::Values(
        BrokenKernel{"store_without_proxy_fence",
                     "stores 16 bytes.*written by thread [0-9]+ .*no fence_proxy_async", 128},
        BrokenKernel{"fence_after_the_barrier", "written by thread [0-9]+ .*no fence_proxy_async",
                     128},
        BrokenKernel{"swizzled_copy_misaligned",
                     "128-byte swizzle at offset 8704 .*wanted a multiple of 1024", 128},
        BrokenKernel{"slot_refilled_too_early",
                     "operand of the wgmma of warpgroup 0|target of the tensor copy|dead-lock",
                     256},
        BrokenKernel{"slot_refilled_while_read", "overwrites 16 bytes.*was read by thread [0-9]+",
                     64},
        BrokenKernel{"copy_without_wait",
                     "reads 16 bytes.*target of the tensor copy at .* number 0, of the mbarrier at "
                     "offset 24576",
                     128},
        BrokenKernel{"store_source_overwritten",
                     "writes 16 bytes.*source of the tensor store of thread 0", 128},
        BrokenKernel{"store_not_waited", "wait_tensor_stores_read is missing", 128},
        BrokenKernel{"store_without_commit", "commit_tensor_stores is missing", 128},
        BrokenKernel{"store_of_unwritten_bytes", "stores 16 bytes.*never written", 128},
        BrokenKernel{"store_to_read_only", "of a, which this kernel may only read", 128},
        BrokenKernel{"copy_at_exit", "nobody has waited for this copy", 128},
        BrokenKernel{"copy_over_unfenced_stores", "overwrites 16 bytes.*no fence_proxy_async", 128},
        BrokenKernel{"bulk_copy_misaligned",
                     "copies 64 bytes from an address that is 4 past a multiple of 16", 128},
        BrokenKernel{"bulk_copy_beyond_its_source",
                     "reads 16 bytes at byte 8192 of a, which has bytes 0 to 8191", 128},
        BrokenKernel{"bulk_copy_not_announced",
                     "copies more bytes than were announced.*phase 0 is complete|dead-lock.* and "
                     "-512 bytes",
                     128},
        BrokenKernel{"bulk_copy_while_read", "overwrites 16 bytes.*was read by thread [0-9]+", 64},
        BrokenKernel{"copied_map", "tensor map that is not in the kernel's parameter record", 128},
        BrokenKernel{"store_matrices_race", "reads 16 bytes.*was written by thread", 32}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Wgmma, BrokenTensorKernels,
    testing::Values(
        BrokenKernel{"wgmma_without_proxy_fence", "multiplies 16 bytes.*no fence_proxy_async", 128},
        BrokenKernel{"wgmma_of_unswizzled_copy", "multiplies 16 bytes.*another arrangement", 128},
        BrokenKernel{"wgmma_without_wait", "multiplies 16 bytes.*target of the tensor copy", 128},
        BrokenKernel{"sum_read_before_wait",
                     "reads a sum of a WGMMA that no wgmma_wait has completed", 128},
        BrokenKernel{"sum_read_with_a_group_pending",
                     "reads a sum of a WGMMA that no wgmma_wait has completed", 128},
        BrokenKernel{"sum_not_named_in_wait", "the wgmma_wait which completed it does not name",
                     128},
        BrokenKernel{"sum_never_written", "reads a sum that no WGMMA has written", 128},
        BrokenKernel{"wgmma_without_fence", "into sums before their wgmma_fence", 128},
        BrokenKernel{"wgmma_without_fence_after_read", "touched since their last wgmma_fence", 128},
        BrokenKernel{"wgmma_adds_to_nothing", "adds to sums that no WGMMA has written", 128},
        BrokenKernel{"wgmma_without_commit",
                     "reads a sum of a WGMMA that no wgmma_wait has completed", 128},
        BrokenKernel{"wgmma_in_flight_at_exit",
                     "drops the sums of a WGMMA that no wgmma_wait has completed", 128},
        BrokenKernel{"registers_changed_in_flight",
                     "waits for the wgmma at .*, whose registers of A it has changed meanwhile",
                     128},
        BrokenKernel{"registers_not_named_in_wait",
                     "drops the registers of a WGMMA that the wgmma_wait which completed it does "
                     "not name",
                     128},
        BrokenKernel{"registers_dropped_in_flight",
                     "drops the registers of a WGMMA that no wgmma_wait has completed", 128},
        BrokenKernel{"wgmma_lanes_disagree", "passes other operands to wgmma than thread 0", 128},
        BrokenKernel{"wgmma_skipped_by_a_warp",
                     "dead-lock: .*in wgmma, where 32 threads of warpgroup 0 are missing", 128},
        BrokenKernel{"wgmma_operand_misplaced",
                     "operand B, which begins at offset 8704 .*wanted a multiple of 1024", 128},
        BrokenKernel{"wgmma_boxes_misplaced",
                     "operand B, MN-major, which begins at offset 8704 .*wanted a multiple of 1024",
                     128},
        BrokenKernel{"wgmma_box_stride_missing",
                     "operand B, MN-major with 128 elements, whose descriptor has 0 bytes from 64 "
                     "of them to the next",
                     128},
        BrokenKernel{"wgmma_operand_overwritten",
                     "writes 16 bytes.*operand of the wgmma of warpgroup 0", 128}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Clusters, BrokenTensorKernels,
    testing::Values(
        BrokenKernel{"multicast_while_read",
                     "overwrites 16 bytes.*(was read by thread|target of the tensor copy)", 128, 4},
        BrokenKernel{"multicast_before_the_peers_barrier",
                     "copies to the mbarrier at offset 24576, which (no thread has initialized|"
                     "thread .* initialized at .* with no barrier since)",
                     128, 4},
        BrokenKernel{"arrival_at_an_ended_cta",
                     "arrives at an mbarrier of CTA [01] of the cluster, which has ended", 128, 4,
                     true},
        BrokenKernel{"arrival_in_the_cluster_missing",
                     "dead-lock: .*wait in wait for parity 0.*lacks 1 of 1 arrivals", 128, 4},
        BrokenKernel{"cta_beyond_the_cluster",
                     "arrives at an mbarrier of CTA 2 of a cluster of 2|dead-lock", 128, 4}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Mbarriers, BrokenTensorKernels,
    testing::Values(
        BrokenKernel{"too_few_bytes_announced",
                     "copies more bytes than were announced.*phase 0 is complete|dead-lock.* and "
                     "-8192 bytes",
                     128},
        BrokenKernel{"too_many_bytes_announced",
                     "dead-lock: 128 threads .*wait for parity 0 of the mbarrier at offset 24576, "
                     "whose phase 0 lacks 0 of 1 arrivals and 128 bytes",
                     128},
        BrokenKernel{"mbarrier_without_init_fence", "no fence_mbarrier_init followed", 128},
        BrokenKernel{"mbarrier_init_race", "which thread 0 initialized at .* with no barrier since",
                     64},
        BrokenKernel{"mbarrier_never_initialised",
                     "arrives at the mbarrier at offset 24592, which no thread has initialized",
                     32},
        BrokenKernel{"mbarrier_initialised_twice",
                     "initializes the mbarrier at offset 24576, which was initialized", 32},
        BrokenKernel{"mbarrier_loaded", "reads 4 bytes.*part of the mbarrier", 32},
        BrokenKernel{"mbarrier_over_arrival",
                     "has all of its 1 arrivals already and waits for 8192 bytes", 32},
        BrokenKernel{"mbarrier_wrong_parity",
                     "dead-lock: .*wait for parity 1 of the mbarrier at offset 24576, whose phase "
                     "[13] lacks 1 of 1",
                     64},
        BrokenKernel{"mbarrier_overtaken",
                     "dead-lock: 32 threads .*parity 0 .*whose phase 2 lacks 1 of 1 arrivals", 64},
        BrokenKernel{"mbarrier_arrival_missing",
                     "dead-lock: 32 threads .*phase 0 lacks 1 of 1 arrivals and 0 bytes", 64}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Registers, BrokenTensorKernels,
    testing::Values(BrokenKernel{"claim_too_large",
                                 "dead-lock: .*claim_registers<232>, which wants 8192 registers "
                                 "more, but [0-9]+ are free",
                                 384},
                    BrokenKernel{"claim_by_three_warps",
                                 "dead-lock: .*claim_registers, where 32 threads of warpgroup 1 "
                                 "are missing|thread 1[67][0-9] has exited",
                                 384},
                    BrokenKernel{"released_more_than_held",
                                 "release_registers<176> with 168 registers", 384}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moejit::runtime
