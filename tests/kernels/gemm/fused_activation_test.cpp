// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM whose epilogue activates and quantizes: the bits of the two kernels that it
// stands for, and what the CPU reference computes.

#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <algorithm>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GemmEpilogue;
using compiler::GroupedGemmSpec;
using reference::block_count;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::Route;

// The operands of a GEMM that activates, for the groups of `route`.
struct Operands {
  Route route;
  QuantizedRows rows;
  QuantizedWeights weights;
  std::vector<float> probs;  // of each row
};

// Everything that was written, poison behind the rows included.
struct Activated {
  std::vector<uint8_t> q;
  std::vector<float> scale_inv;
  std::vector<uint16_t> h1;  // empty where it is not stored
  bool operator==(const Activated&) const = default;
};

class FusedActivation : public GemmTest {
 protected:
  static constexpr int64_t kBeyond = 130;  // rows behind the last one

  static GroupedGemmSpec gated(int32_t experts, int32_t intermediate, int32_t k,
                               GemmEpilogue epilogue = GemmEpilogue::kActivationQuantize) {
    return compiler::choose_tiles({.epilogue = epilogue,
                                   .local_experts = experts,
                                   .sections = 2,
                                   .section_n = intermediate,
                                   .k = k,
                                   .epsilon = reference::kActivationEps});
  }

  // The same with swapped tiles, one of which is enough for `largest_group` rows.
  static GroupedGemmSpec swapped(GroupedGemmSpec spec, int64_t largest_group) {
    spec.narrow_tiles = 0;
    spec.stages = GroupedGemmSpec().stages;
    return compiler::choose_swapped_tiles(spec, largest_group);
  }

  static Operands random(const GroupedGemmSpec& spec, const Route& route, uint64_t seed = 5) {
    Operands in{.route = route,
                .rows = random_rows(spec, route.rows(), seed),
                .weights = random_weights(spec, seed + 1),
                .probs = random_factors(route, seed)};
    poison_pad_rows(route, in.rows);
    return in;
  }
  static Operands integers(const GroupedGemmSpec& spec, const Route& route) {
    Operands in = random(spec, route);
    in.rows = integer_rows(spec, route.rows());
    in.weights = integer_weights(spec);
    poison_pad_rows(route, in.rows);
    return in;
  }

  // NaN for pad rows.
  static std::vector<float> random_factors(const Route& route, uint64_t seed) {
    std::vector<float> probs = reference::random_probs(route.rows() + 1, 8, seed);
    probs.resize(static_cast<size_t>(route.rows()) + 1);
    const auto real = reference::real_rows(route);
    for (size_t row = 0; row < real.size(); ++row)
      if (real[row] == 0) probs[row] = std::numeric_limits<float>::quiet_NaN();
    return probs;
  }

  Activated fused(const GroupedGemmSpec& spec, const Operands& in, int64_t ctas = 3) {
    const int64_t rows = in.rows.rows + kBeyond;
    const int64_t h1_rows = stores_result(spec) ? rows : 0;
    const DeviceBuffer a = input("a", in.rows.q);
    const DeviceBuffer a_scale_inv = input("a_scale_inv", in.rows.scale_inv);
    const DeviceBuffer b = input("b", in.weights.q);
    const DeviceBuffer b_scale_inv = input("b_scale_inv", in.weights.scale_inv);
    const DeviceBuffer probs = input("probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer h1 = output<uint16_t>("h1", std::max<int64_t>(1, h1_rows * in.weights.rows));
    const DeviceBuffer q = output<uint8_t>("q", rows * spec.section_n);
    const DeviceBuffer q_scale = output<float>("q_scale_inv", rows * block_count(spec.section_n));
    device::GroupedGemmParams params{.a_scale_inv = a_scale_inv.as<const float>(),
                                     .b_scale_inv = b_scale_inv.as<const float>(),
                                     .probs = probs.as<const float>(),
                                     .d = stores_result(spec) ? h1.as<device::Bf16>() : nullptr,
                                     .q = q.as<device::E4m3>(),
                                     .q_scale_inv = q_scale.as<float>(),
                                     .counts = counts.as<const int32_t>(),
                                     .offs = offs.as<const int32_t>()};
    // A ends with the rows that there are; outputs are longer, so that stores beyond would be seen.
    params.a_map = tensor_map(map_of(spec, in.rows.rows, "a_map"), a);
    params.b_map = tensor_map(map_of(spec, rows, "b_map"), b);
    if (!spec.is_swapped) params.q_map = tensor_map(map_of(spec, rows, "q_map"), q);
    if (stores_result(spec) && !spec.is_swapped)
      params.d_map = tensor_map(map_of(spec, rows, "d_map"), h1);
    run(spec, ctas, params,
        {&a, &a_scale_inv, &b, &b_scale_inv, &probs, &counts, &offs, &h1, &q, &q_scale});
    return {.q = q.download<uint8_t>(),
            .scale_inv = q_scale.download<float>(),
            .h1 = stores_result(spec) ? h1.download<uint16_t>() : std::vector<uint16_t>()};
  }

  // The grouped GEMM, then the row chain that reads its result.
  Activated separate(const GroupedGemmSpec& spec, const Operands& in) {
    const int32_t width = spec.section_n;
    const int64_t rows = in.rows.rows + kBeyond;
    const GroupedGemmSpec gemm = problem(spec.local_experts, 2, width, spec.k);
    const auto h1 = multiply_all(gemm, in.route, in.rows, in.weights);
    const DeviceBuffer h1_buffer = input("h1", h1);
    const DeviceBuffer probs = input("probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer q = output<uint8_t>("q", rows * width);
    const DeviceBuffer q_scale = output<float>("q_scale_inv", rows * block_count(width));
    const device::RowChainParams params{.input = h1_buffer.as<const void>(),
                                        .probs = probs.as<const float>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = q.as<void>(),
                                        .output_scale_inv = q_scale.as<float>(),
                                        .rows = in.rows.rows};
    const compiler::RowChainSpec chain{
        .load = compiler::LoadStage::kGatedRows,
        .transform = compiler::TransformStage::kActivationProbability,
        .quantize = spec.rounds_activation ? compiler::QuantizeStage::k1x128Rounded
                                           : compiler::QuantizeStage::k1x128,
        .store = compiler::StoreStage::kGroupedRows,
        .columns = width,
        .local_experts = spec.local_experts,
        .epsilon = reference::kActivationEps,
        .activation = spec.activation};
    run(chain, 3, params, {&h1_buffer, &probs, &counts, &offs, &q, &q_scale});
    return {.q = q.download<uint8_t>(),
            .scale_inv = q_scale.download<float>(),
            .h1 = stores_result(spec) ? h1 : std::vector<uint16_t>()};
  }

  void expect_bits_of_both_kernels(const GroupedGemmSpec& spec, const Operands& in,
                                   int64_t ctas = 3) {
    const Activated got = fused(spec, in, ctas);
    const Activated wanted = separate(spec, in);
    const int64_t width = spec.section_n;
    EXPECT_TRUE(matches(compare_e4m3({"q", width}, got.q, wanted.q)));
    EXPECT_TRUE(
        matches(compare_f32({"q_scale_inv", block_count(width)}, got.scale_inv, wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_bf16({"h1", 2 * width}, got.h1, wanted.h1)));
    if (!stores_result(spec)) return;
    EXPECT_TRUE(matches(compare_bf16({"h1", 2 * width}, head(got.h1, in.route.rows() * 2 * width),
                                     reference::grouped_gemm(in.rows, in.weights, in.route))));
  }

  // Sums have the reference's bits, the sigmoid's last bits are not its.
  void expect_close_to_reference(const GroupedGemmSpec& spec, const Operands& in,
                                 const ActivationCase& activation = {}) {
    const int64_t width = spec.section_n;
    const int64_t rows = in.route.rows();
    const auto h1 = reference::grouped_gemm(in.rows, in.weights, in.route);
    const auto wanted =
        reference::activation_quantize(h1, in.probs, in.route, width, 1, activation.reference);
    const Activated got = fused(spec, in);
    EXPECT_TRUE(untouched_from(got.q, rows * width));
    EXPECT_TRUE(untouched_from(got.scale_inv, rows * block_count(width)));
    EXPECT_TRUE(
        matches(compare_e4m3_within_one_code({"q", width}, head(got.q, rows * width), wanted.q)));
    EXPECT_TRUE(
        matches(compare_f32({"q_scale_inv", block_count(width)},
                            head(got.scale_inv, rows * block_count(width)), wanted.scale_inv)));
  }

  // A last tile of 16 columns, and a last block of 16 of the contraction.
  const GroupedGemmSpec ragged_ = gated(7, 144, 272);
  const GroupedGemmSpec ragged_kept_ =
      gated(7, 144, 272, GemmEpilogue::kStoreAndActivationQuantize);
  const GroupedGemmSpec even_ = gated(7, 256, 512);
  const std::vector<int32_t> ragged_counts_ = {0, 1, 17, 0, 129, 128, 0};
  const std::vector<int32_t> tail_counts_ = {64, 65, 127, 128, 129, 192, 193};
  const std::vector<int32_t> few_counts_ = {1, 0, 40, 5, 97, 64, 16};

 private:
  static compiler::TensorBox map_of(const GroupedGemmSpec& spec, int64_t rows,
                                    std::string_view role) {
    for (const auto& map : compiler::grouped_gemm_tensor_maps(spec, rows, {}))
      if (map.role == role) return map.box;
    ADD_FAILURE() << role;
    return {};
  }
};

TEST_F(FusedActivation, HasTheBitsOfBothKernelsForAnyAlignment) {
  for (const int32_t alignment : {1, 16, 100, 128}) {
    SCOPED_TRACE(alignment);
    for (const GroupedGemmSpec& spec : {ragged_, even_})
      expect_bits_of_both_kernels(spec, random(spec, splits(ragged_counts_, alignment)));
  }
}

TEST_F(FusedActivation, HasTheBitsOfBothKernelsAroundTheSizesOfTilesAndTails) {
  for (const int32_t alignment : {1, 128}) {
    SCOPED_TRACE(alignment);
    expect_bits_of_both_kernels(ragged_, random(ragged_, splits(tail_counts_, alignment)));
  }
}

TEST_F(FusedActivation, StoresTheBitsOfGateAndUpToo) {
  for (const int32_t alignment : {1, 128}) {
    SCOPED_TRACE(alignment);
    expect_bits_of_both_kernels(ragged_kept_,
                                random(ragged_kept_, splits(tail_counts_, alignment)));
  }
}

TEST_F(FusedActivation, HasTheBitsOfBothKernelsInSwappedTiles) {
  for (const int32_t alignment : {1, 16, 64}) {
    SCOPED_TRACE(alignment);
    for (const GroupedGemmSpec& spec : {ragged_, even_, ragged_kept_})
      expect_bits_of_both_kernels(swapped(spec, 64), random(spec, splits(few_counts_, alignment)));
  }
}

TEST_F(FusedActivation, HasTheBitsOfBothKernelsInSwappedTilesOfAnyHeight) {
  for (const int32_t tile_rows : {16, 32, 96}) {
    SCOPED_TRACE(tile_rows);
    GroupedGemmSpec spec = swapped(ragged_, tile_rows);
    EXPECT_EQ(spec.tile_rows, tile_rows);
    expect_bits_of_both_kernels(spec, random(spec, splits(few_counts_, 1)));
  }
}

// As recipes that hold values in bf16.
TEST_F(FusedActivation, RoundsValuesOfSwappedTilesBeforeTheyAreQuantized) {
  GroupedGemmSpec spec = swapped(ragged_, 64);
  spec.rounds_activation = true;
  expect_bits_of_both_kernels(spec, random(spec, splits(few_counts_, 1)));
}

// CTAs with tiles beside each other read A once for both.
TEST_F(FusedActivation, HasTheSameBitsInClustersOfSwappedTiles) {
  const GroupedGemmSpec spec = compiler::with_shared_a(swapped(even_, 64));
  expect_bits_of_both_kernels(spec, random(spec, splits(few_counts_, 1)), 4);
}

TEST_F(FusedActivation, HasTheBitsOfBothKernelsForContractionsOfAnyLength) {
  for (const int32_t k : {16, 640, 35 * 128 + 16}) {
    SCOPED_TRACE(k);
    const GroupedGemmSpec spec = gated(3, 128, k);
    expect_bits_of_both_kernels(spec, random(spec, splits({30, 0, 70}, 16)));
  }
}

TEST_F(FusedActivation, IsCloseToTheReferenceForAnyAlignment) {
  for (const int32_t alignment : {1, 128}) {
    SCOPED_TRACE(alignment);
    for (const GroupedGemmSpec& spec : {ragged_, even_})
      expect_close_to_reference(spec, integers(spec, splits(ragged_counts_, alignment)));
  }
}

TEST_F(FusedActivation, IsCloseToTheReferenceAndHasTheBitsOfBothKernelsForEveryActivation) {
  for (const ActivationCase& activation : activation_cases()) {
    SCOPED_TRACE(activation.name);
    GroupedGemmSpec spec = ragged_;
    spec.activation = activation.compiled;
    const Operands in = integers(spec, splits(ragged_counts_, 16));
    expect_close_to_reference(spec, in, activation);
    expect_bits_of_both_kernels(spec, in);
  }
}

TEST_F(FusedActivation, IsCloseToTheReferenceWhereARowIsShorterThanABlock) {
  const GroupedGemmSpec spec = gated(3, 16, 144);
  expect_close_to_reference(spec, integers(spec, splits({65, 10, 128}, 16)));
}

// Pad rows that fill tiles of their own, with NaN in A.
TEST_F(FusedActivation, WritesZerosAndScaleZeroToPadRows) {
  const auto route = splits({1, 0, 0, 127, 0, 0, 64}, 300);
  const Activated got = fused(ragged_, random(ragged_, route));
  const auto real = reference::real_rows(route);
  const int64_t width = ragged_.section_n;
  const int64_t blocks = block_count(width);
  for (int64_t row = 0; row < route.rows(); ++row) {
    if (real[row] != 0) continue;
    const auto is_zero = [](auto value) { return value == 0; };
    ASSERT_TRUE(std::all_of(&got.q[row * width], &got.q[(row + 1) * width], is_zero)) << row;
    ASSERT_TRUE(
        std::all_of(&got.scale_inv[row * blocks], &got.scale_inv[(row + 1) * blocks], is_zero))
        << row;
  }
}

// A NaN of gate or up stays one, and its block keeps the scale of the other columns. Where gate's
// last tile reaches over its end into up it is read and must not count.
TEST_F(FusedActivation, LetsANanOfAWeightReachItsColumnAlone) {
  for (const int64_t column : {int64_t{5}, ragged_.section_n + int64_t{20}}) {
    SCOPED_TRACE(column);
    Operands in = integers(ragged_, splits(ragged_counts_, 16));
    in.weights.q[(4 * in.weights.rows + column) * ragged_.k + 5] = 0x7f;
    expect_close_to_reference(ragged_, in);
    expect_bits_of_both_kernels(ragged_, in);
  }
}

TEST_F(FusedActivation, TouchesNothingWhereAllGroupsAreEmpty) {
  Operands in = random(ragged_, splits({1, 0, 0, 0, 0, 0, 0}, 1));
  in.route = splits(std::vector<int32_t>(7, 0), 128);
  const Activated got = fused(ragged_, in);
  EXPECT_TRUE(untouched_from(got.q, 0));
  EXPECT_TRUE(untouched_from(got.scale_inv, 0));
}

// Each group alone: rows around it, which neighbours own in the other launch, stay poison.
TEST_F(FusedActivation, WritesTheRowsOfItsGroupsAndNoOthers) {
  for (const int32_t alignment : {1, 16}) {
    Operands in = random(ragged_kept_, splits({0, 1, 63, 64, 129, 200, 0}, alignment));
    const Route all = in.route;
    const Activated together = fused(ragged_kept_, in);
    const auto expect_rows = [&](const auto& got, const auto& wanted, int64_t group, int64_t n) {
      const int64_t begin = all.offs[group] * n;
      const int64_t end = all.offs[group + 1] * n;
      EXPECT_TRUE(untouched_from(head(got, begin), 0));
      EXPECT_TRUE(untouched_from(got, end));
      EXPECT_TRUE(std::equal(got.begin() + begin, got.begin() + end, wanted.begin() + begin));
    };
    for (std::size_t group = 0; group < all.counts.size(); ++group) {
      SCOPED_TRACE(group);
      in.route = only_group(all, group);
      const Activated alone = fused(ragged_kept_, in);
      const auto index = static_cast<int64_t>(group);
      expect_rows(alone.q, together.q, index, 144);
      expect_rows(alone.scale_inv, together.scale_inv, index, 2);
      expect_rows(alone.h1, together.h1, index, 288);
    }
  }
}

// Groups that end in the first and in the second tile of a cluster.
TEST_F(FusedActivation, HasTheSameBitsInClusters) {
  for (const GemmEpilogue epilogue :
       {GemmEpilogue::kActivationQuantize, GemmEpilogue::kStoreAndActivationQuantize}) {
    const GroupedGemmSpec spec = gated(7, 176, 640, epilogue);
    const Operands in = random(spec, splits({0, 1, 129, 256, 257, 64, 0}, 16));
    GroupedGemmSpec clustered = spec;
    clustered.cluster_ctas = 2;
    EXPECT_EQ(fused(clustered, in, 4), fused(spec, in));
  }
}

TEST_F(FusedActivation, DependsNeitherOnTheNumberOfCtasNorOnTheOrderOfThreads) {
  const Operands in = random(ragged_, splits(tail_counts_, 16));
  const Activated one = fused(ragged_, in, 1);
  for (const int64_t ctas : {2, 5, by_target(9, 132)}) {
    open(static_cast<uint64_t>(ctas));
    EXPECT_EQ(one, fused(ragged_, in, ctas)) << ctas << " CTAs";
  }
}

}  // namespace
}  // namespace moejit::testing
