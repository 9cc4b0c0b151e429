// SPDX-License-Identifier: Apache-2.0
// Bugs that others' grouped GEMMs for Hopper had, by the numbers of their reports to DeepGEMM.

#include "compiler/planner/grouped_gemm.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <algorithm>

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::QuantizedRows;
using reference::QuantizedWeights;

using KnownBugs = GemmTest;

// #365, #375: results changed from run to run where a group had exactly one full tile.
TEST_F(KnownBugs, AGroupOfExactly128TokensRepeats) {
  const GroupedGemmSpec spec = problem(4, 1, by_target(192, 1536), by_target(272, 2048));
  const auto route = splits({128, 128, 5, 128}, 128);
  expect_exact(spec, route);
  const QuantizedRows rows = random_rows(spec, route.rows());
  const QuantizedWeights weights = random_weights(spec);
  const auto first = multiply(spec, route, rows, weights);
  for (int32_t run = 0; run < by_target(2, 50); ++run) {
    ASSERT_EQ(first, multiply(spec, route, rows, weights, by_target(3, 132))) << "run " << run;
  }
}

// #415, #429, #430: tiles that were loaded for two CTAs at once came from another group where the
// number of tiles was odd.
TEST_F(KnownBugs, AnOddNumberOfTilesInEveryGroup) {
  const GroupedGemmSpec spec = problem(3, 1, by_target(192, 3072), by_target(144, 1024));
  expect_exact(spec, splits({192, 192, 192}, 64));
  expect_exact(spec, splits({192, 320, 64}, 1));
}

// #237, #238: an illegal instruction at n = 768.
TEST_F(KnownBugs, N768) {
  expect_exact(problem(2, 1, 768, by_target(144, 2048)), splits({130, 20}, 128));
  expect_exact(problem(2, 2, 384, by_target(144, 2048)), splits({130, 20}, 16));
}

// #178, #405: crashes on odd shapes.
TEST_F(KnownBugs, OddShapes) {
  for (const auto& [section_n, k] : {std::pair{8, 16}, {72, 48}, {264, 1008}, {1032, 112}}) {
    SCOPED_TRACE(section_n);
    expect_exact(problem(3, 2, section_n, k), splits({31, 1, 77}, 1));
    expect_exact(swapped_problem(3, 2, section_n, k), splits({31, 1, 77}, 1));
  }
}

// #268: groups of fewer than 64 rows.
TEST_F(KnownBugs, FewerThan64RowsInEveryGroup) {
  expect_exact(problem(8, 1, by_target(192, 4096), by_target(272, 2048)),
               splits({1, 2, 7, 8, 9, 33, 62, 63}, 1));
}

// The panels in which D is staged change where N is not a multiple of 64.
TEST_F(KnownBugs, NThatIsNoMultipleOf64) {
  for (const int32_t section_n : {144, 200, 328, 1440}) {
    SCOPED_TRACE(section_n);
    expect_exact(problem(3, 2, section_n, 144), splits({64, 65, 200}, 64));
  }
}

// A, B and D of which only the end is used: 70 rows of the last expert. The rest is poison.
class FarOffsets : public GemmTest {
 protected:
  static constexpr int32_t kRows = 70;

  // For kernels of one problem, which share its large matrices.
  void expect_exact_at_the_end(const std::vector<GroupedGemmSpec>& kinds, int64_t first_row) {
    const GroupedGemmSpec& spec = kinds.front();
    GroupedGemmSpec last = spec;
    last.local_experts = 1;
    const QuantizedRows rows = integer_rows(spec, kRows);
    const QuantizedWeights weights = integer_weights(last);
    const auto wanted = reference::grouped_gemm(rows, weights, splits({kRows}, 1));
    const int64_t n = weights.rows;
    const auto experts_before = int64_t{spec.local_experts} - 1;

    const DeviceBuffer a = at_the_end("a", first_row * spec.k, rows.q);
    const DeviceBuffer a_scale_inv =
        at_the_end("a_scale_inv", first_row * reference::block_count(spec.k), rows.scale_inv);
    const DeviceBuffer b = at_the_end("b", experts_before * n * spec.k, weights.q);
    const DeviceBuffer b_scale_inv = at_the_end(
        "b_scale_inv", experts_before * std::ssize(weights.scale_inv), weights.scale_inv);
    std::vector<int32_t> group_counts(static_cast<size_t>(experts_before), 0);
    std::vector<int32_t> starts(static_cast<size_t>(experts_before) + 1,
                                static_cast<int32_t>(first_row));
    group_counts.push_back(kRows);
    starts.push_back(static_cast<int32_t>(first_row) + kRows);
    const DeviceBuffer counts = input("counts", group_counts);
    const DeviceBuffer offs = input("offs", starts);
    for (const GroupedGemmSpec& kind : kinds) {
      const DeviceBuffer d = output<uint16_t>("d", (first_row + kRows) * n);
      const auto maps = compiler::grouped_gemm_tensor_maps(kind, first_row + kRows, {});
      const device::GroupedGemmParams params{.a_map = map_of(maps, "a_map", a),
                                             .b_map = map_of(maps, "b_map", b),
                                             .d_map = map_of(maps, "d_map", d),
                                             .a_scale_inv = a_scale_inv.as<const float>(),
                                             .b_scale_inv = b_scale_inv.as<const float>(),
                                             .d = d.as<device::Bf16>(),
                                             .counts = counts.as<const int32_t>(),
                                             .offs = offs.as<const int32_t>()};
      run(kind, 3, params, {&a, &a_scale_inv, &b, &b_scale_inv, &counts, &offs, &d});
      EXPECT_TRUE(
          matches(compare_bf16({"d", n}, d.download<uint16_t>(first_row * n, kRows * n), wanted)));
      const int64_t before = std::min<int64_t>(first_row, 1000) * n;
      EXPECT_TRUE(untouched_from(d.download<uint16_t>(first_row * n - before, before), 0));
    }
  }

 private:
  template <typename T>
  DeviceBuffer at_the_end(std::string name, int64_t first, const std::vector<T>& values) {
    DeviceBuffer buffer = output<T>(std::move(name), first + std::ssize(values));
    buffer.upload(first, values);
    return buffer;
  }
};

// #226: an offset of 32 bits wraps around.
TEST_F(FarOffsets, Beyond31BitsInA) {
  constexpr int64_t kFirstRow = 7'900'000;
  static_assert(kFirstRow * 272 > int64_t{1} << 31);
  expect_exact_at_the_end({problem(1, 1, 8, 272), swapped_problem(1, 1, 8, 272)}, kFirstRow);
}

TEST_F(FarOffsets, Beyond31BitsInB) {
  static_assert(int64_t{4095} * 200 * 2640 > int64_t{1} << 31);
  expect_exact_at_the_end({problem(4096, 1, 200, 2640), swapped_problem(4096, 1, 200, 2640)}, 0);
}

TEST_F(FarOffsets, Beyond31BitsInD) {
  if (!kOnGpu) GTEST_SKIP() << "4.3 GB of D are too many for a simulator's machine";
  constexpr int64_t kFirstRow = 2'100'000;
  static_assert(kFirstRow * 2 * 520 > int64_t{1} << 31);
  expect_exact_at_the_end({problem(1, 2, 520, 16), swapped_problem(1, 2, 520, 16)}, kFirstRow);
}

}  // namespace
}  // namespace moejit::testing
