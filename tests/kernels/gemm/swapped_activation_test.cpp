// SPDX-License-Identifier: Apache-2.0
// Swapped tiles whose epilogue activates and stores bf16: the bits of the grouped GEMM and of the
// activation that they stand for.

#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <algorithm>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GemmBias;
using compiler::GemmEpilogue;
using compiler::GroupedGemmSpec;
using reference::Route;

constexpr uint16_t kBf16Nan = 0x7fc0;
constexpr int64_t kBeyond = 70;  // rows behind the last one

// The operands of a GEMM that activates, for the groups of `route`.
struct Bf16Operands {
  Route route;
  std::vector<uint16_t> rows, weights, bias;
  std::vector<float> probs;
};

// Everything that was written, poison behind the rows included.
struct Bf16Activated {
  std::vector<uint16_t> act;
  std::vector<uint16_t> h1;  // empty where it is not stored
  bool operator==(const Bf16Activated&) const = default;
};

class SwappedActivation : public GemmTest {
 protected:
  static GroupedGemmSpec problem_of(int32_t intermediate, GemmEpilogue epilogue) {
    return {.operands = compiler::DType::kBF16,
            .scales = compiler::GemmScales::kNone,
            .epilogue = epilogue,
            .local_experts = 5,
            .sections = 2,
            .section_n = intermediate,
            .k = 80};
  }

  // Pad rows and what belongs to them are NaN.
  static Bf16Operands random(const GroupedGemmSpec& spec, const Route& route) {
    const int64_t columns = 2 * spec.section_n;
    Bf16Operands in{.route = route,
                    .rows = reference::random_activations(route.rows(), spec.k, 3),
                    .weights = reference::random_weights(spec.local_experts, columns, spec.k, 4),
                    .bias = reference::random_weights(spec.local_experts, columns, 1, 5),
                    .probs = reference::random_probs(route.rows() + 1, 8, 6)};
    const auto real = reference::real_rows(route);
    for (int64_t row = 0; row < route.rows(); ++row) {
      if (real[static_cast<size_t>(row)] != 0) continue;
      std::fill_n(in.rows.begin() + row * spec.k, spec.k, kBf16Nan);
      in.probs[static_cast<size_t>(row)] = std::numeric_limits<float>::quiet_NaN();
    }
    return in;
  }

  Bf16Activated fused(const GroupedGemmSpec& spec, const Bf16Operands& in) {
    return multiply(spec, in, stores_result(spec));
  }

  // The grouped GEMM, then the row chain that reads its result.
  Bf16Activated separate(const GroupedGemmSpec& fused, const Bf16Operands& in) {
    GroupedGemmSpec problem = problem_of(fused.section_n, GemmEpilogue::kStoreBf16);
    problem.bias = fused.bias;
    problem.has_interleaved_bias = fused.has_interleaved_bias;
    const GroupedGemmSpec spec = compiler::choose_swapped_tiles(problem, fused.tile_rows);
    const Bf16Activated h1 = multiply(spec, in, true);
    const DeviceBuffer input_buffer = input("input", h1.h1);
    const DeviceBuffer probs = input("probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const DeviceBuffer act =
        output<uint16_t>("output", (in.route.rows() + kBeyond) * fused.section_n);
    const device::RowChainParams params{.input = input_buffer.as<const void>(),
                                        .probs = probs.as<const float>(),
                                        .counts = counts.as<const int32_t>(),
                                        .offs = offs.as<const int32_t>(),
                                        .output = act.as<void>(),
                                        .rows = in.route.rows()};
    const compiler::RowChainSpec chain{
        .load = compiler::LoadStage::kGatedRows,
        .transform = compiler::TransformStage::kActivationProbability,
        .quantize = compiler::QuantizeStage::kNone,
        .store = compiler::StoreStage::kGroupedRows,
        .columns = fused.section_n,
        .local_experts = fused.local_experts,
        .is_interleaved = fused.is_interleaved,
        .activation = fused.activation};
    run(chain, 3, params, {&input_buffer, &probs, &counts, &offs, &act});
    return {.act = act.download<uint16_t>(),
            .h1 = stores_result(fused) ? h1.h1 : std::vector<uint16_t>()};
  }

  void expect_bits_of_both_kernels(const GroupedGemmSpec& spec, const Route& route) {
    const Bf16Operands in = random(spec, route);
    const Bf16Activated got = fused(spec, in);
    const Bf16Activated wanted = separate(spec, in);
    EXPECT_TRUE(matches(compare_bf16({"act", spec.section_n}, got.act, wanted.act)));
    EXPECT_TRUE(matches(compare_bf16({"h1", 2 * spec.section_n}, got.h1, wanted.h1)));
  }

  // Groups without rows, with few, and with more than a tile has.
  const std::vector<int32_t> counts_ = {1, 0, 40, 5, 97};

 private:
  Bf16Activated multiply(const GroupedGemmSpec& spec, const Bf16Operands& in, bool has_result) {
    const int64_t rows = in.route.rows() + kBeyond;
    const DeviceBuffer a = input("a", in.rows);
    const DeviceBuffer b = input("b", in.weights);
    const DeviceBuffer bias = input("bias", in.bias);
    const DeviceBuffer probs = input("probs", in.probs);
    const DeviceBuffer counts = input("counts", in.route.counts);
    const DeviceBuffer offs = input("offs", in.route.offs);
    const int64_t width = in.weights.size() / (spec.local_experts * int64_t{spec.k});
    const DeviceBuffer d = output<uint16_t>("d", has_result ? rows * width : 1);
    const DeviceBuffer q = output<uint16_t>("q", stores_activation(spec) ? rows * width / 2 : 1);
    // A ends with the rows that there are.
    const auto maps = compiler::grouped_gemm_tensor_maps(spec, in.route.rows(), {});
    const device::GroupedGemmParams params{.a_map = map_of(maps, "a_map", a),
                                           .b_map = map_of(maps, "b_map", b),
                                           .probs = probs.as<const float>(),
                                           .d = has_result ? d.as<device::Bf16>() : nullptr,
                                           .q = q.as<device::E4m3>(),
                                           .counts = counts.as<const int32_t>(),
                                           .offs = offs.as<const int32_t>(),
                                           .bias = bias.as<const device::Bf16>()};
    run(spec, 4, params, {&a, &b, &bias, &probs, &counts, &offs, &d, &q});
    return {.act = q.download<uint16_t>(),
            .h1 = has_result ? d.download<uint16_t>() : std::vector<uint16_t>()};
  }
};

// 96 columns: the last tile has columns of gate and up alike that belong to others.
TEST_F(SwappedActivation, HasTheBitsOfBothKernelsForAnyAlignment) {
  for (const int32_t intermediate : {64, 96})
    for (const int32_t alignment : {1, 16, 64}) {
      SCOPED_TRACE(fmt::format("I {} alignment {}", intermediate, alignment));
      expect_bits_of_both_kernels(
          compiler::choose_swapped_tiles(problem_of(intermediate, GemmEpilogue::kActivation), 64),
          splits(counts_, alignment));
    }
}

TEST_F(SwappedActivation, HasTheBitsOfBothKernelsInTilesOfAnyHeight) {
  for (const int32_t tile_rows : {16, 32, 96, 128}) {
    SCOPED_TRACE(tile_rows);
    expect_bits_of_both_kernels(
        compiler::choose_swapped_tiles(problem_of(96, GemmEpilogue::kActivation), tile_rows),
        splits(counts_, 1));
  }
}

TEST_F(SwappedActivation, StoresGateAndUpWhereTheyAreKept) {
  const auto spec =
      compiler::choose_swapped_tiles(problem_of(96, GemmEpilogue::kStoreAndActivation), 64);
  for (const int32_t alignment : {1, 64})
    expect_bits_of_both_kernels(spec, splits(counts_, alignment));
}

// As gpt-oss has them.
TEST_F(SwappedActivation, TakesRowsOfGateAndUpThatAlternateAndBiases) {
  for (const GemmEpilogue epilogue :
       {GemmEpilogue::kActivation, GemmEpilogue::kStoreAndActivation}) {
    GroupedGemmSpec problem = problem_of(96, epilogue);
    problem.bias = GemmBias::kColumns;
    problem.is_interleaved = true;
    problem.activation = compiler::make_activation("clamped_swiglu").value();
    expect_bits_of_both_kernels(compiler::choose_swapped_tiles(problem, 64), splits(counts_, 16));
  }
}

// Neither is b1 of a layer whose w1 is sorted when it is quantized.
TEST_F(SwappedActivation, TakesBiasesInAnotherOrderThanRows) {
  GroupedGemmSpec problem = problem_of(96, GemmEpilogue::kActivation);
  problem.bias = GemmBias::kColumns;
  problem.has_interleaved_bias = true;
  expect_bits_of_both_kernels(compiler::choose_swapped_tiles(problem, 64), splits(counts_, 16));
}

// A cluster's CTAs read A once for both. Those that share an SM have half of the columns.
TEST_F(SwappedActivation, HasTheSameBitsInClustersAndWhereCtasShareAnSm) {
  GroupedGemmSpec problem = problem_of(96, GemmEpilogue::kActivation);
  expect_bits_of_both_kernels(compiler::with_shared_a(compiler::choose_swapped_tiles(problem, 64)),
                              splits(counts_, 1));
  for (const bool is_interleaved : {false, true}) {
    problem.is_interleaved = is_interleaved;
    problem.bias = is_interleaved ? GemmBias::kColumns : GemmBias::kNone;
    expect_bits_of_both_kernels(
        compiler::with_shared_sm(compiler::choose_swapped_tiles(problem, 64)), splits(counts_, 1));
  }
}

}  // namespace
}  // namespace moejit::testing
