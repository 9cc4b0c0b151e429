// SPDX-License-Identifier: Apache-2.0
// GEMMs whose weights are packed MXFP4 have the bits of e4m3 codes with the same values.

#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/packed_weights.h"
#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/gemm_runner.h"

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::QuantizedWeights;

// Packed tiles of random codes, in which each of the 15 shifts occurs, and their scales. Scales are
// no powers of two: any are right.
QuantizedWeights packed_weights(const GroupedGemmSpec& spec, uint64_t seed) {
  const reference::RandomStream random(seed, 0);
  QuantizedWeights b{.experts = spec.local_experts,
                     .rows = int64_t{spec.sections} * spec.section_n,
                     .cols = spec.k,
                     .sections = spec.sections};
  const auto tiles =
      static_cast<std::size_t>(b.experts * b.scale_rows() * reference::block_count(b.cols));
  for (std::size_t i = 0; i < tiles; ++i)
    b.scale_inv.push_back(static_cast<float>(1 + random.below(i, 1000)) / 4096.0f);
  b.q = reference::random_packed_tiles(static_cast<int64_t>(tiles), seed + 1);
  return b;
}

class PackedGemm : public GemmTest {
 protected:
  static GroupedGemmSpec packed(int32_t experts, int32_t sections, int32_t section_n, int32_t k) {
    return {.b_packed = compiler::PackedFormat::kMxfp4,
            .local_experts = experts,
            .sections = sections,
            .section_n = section_n,
            .k = k};
  }

  void expect_exact(const GroupedGemmSpec& spec, const reference::Route& route, uint64_t seed) {
    const QuantizedWeights b = packed_weights(spec, seed);
    const QuantizedWeights codes =
        reference::unpack_weights(b.q, b.scale_inv, b.experts, b.rows, b.cols, b.sections);
    reference::QuantizedRows rows = random_rows(spec, route.rows(), seed + 1);
    const auto wanted = reference::grouped_gemm(rows, codes, route);
    poison_pad_rows(route, rows);
    EXPECT_TRUE(matches(compare_bf16({"d", b.rows}, multiply(spec, route, rows, b), wanted)));
  }
};

// Sections, rows and steps that end within a tile, and groups of every width of tiles.
TEST_F(PackedGemm, HasTheBitsOfCodesWithTheSameValues) {
  const GroupedGemmSpec problem = packed(5, 2, 144, 416);
  const reference::Route route = splits({17, 0, 128, 65, 5}, 1);
  for (const int32_t tile_rows : compiler::kSwappedTileRows) {
    SCOPED_TRACE(tile_rows);
    expect_exact(compiler::choose_swapped_tiles(problem, tile_rows), route,
                 static_cast<uint64_t>(tile_rows));
  }
}

// Joined sections, and more steps than the ring has stages.
TEST_F(PackedGemm, GoesRoundTheRing) {
  const GroupedGemmSpec problem = packed(2, 2, 128, 128 * by_target(13, 25));
  expect_exact(compiler::choose_swapped_tiles(problem, 16), splits({9, 3}, 1), 7);
}

TEST_F(PackedGemm, HasNoOtherTilesThanSwappedOnes) {
  const GroupedGemmSpec problem = packed(2, 1, 256, 256);
  for (const int64_t mean : {1, 64, 4096})
    for (const auto& candidate : compiler::grouped_gemm_candidates(problem, {mean, 8 * mean})) {
      EXPECT_TRUE(candidate.spec.is_swapped);
      EXPECT_EQ(candidate.spec.cluster_ctas, 1);
    }
}

}  // namespace
}  // namespace moejit::testing
