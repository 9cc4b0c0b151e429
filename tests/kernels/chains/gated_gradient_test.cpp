// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the gradient of a gated activation and both operands of wgrad, against the
// row chains whose bits it promises and the reference of the transpose.
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/transpose.h"
#include "templates/moejit_device/params/gated_gradient_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/gated_gradient_cases.h"

namespace moejit::testing {
namespace {

using compiler::LoadStage;
using compiler::QuantizeStage;
using compiler::RowChainSpec;
using compiler::StoreStage;
using compiler::TransformStage;
using reference::block_count;
using reference::QuantizedRows;
using reference::TransposeGroups;

class GatedGradientKernel : public Chains {
 protected:
  using Inputs = GatedGradientInputs;
  // dh1 [owned, 2 * pitch] and act [owned, columns] by rows.
  struct Rows {
    QuantizedRows dh1, act;
    std::vector<float> dprobs;
  };

  // By the row chains.
  Rows rows_of(const Inputs& in) {
    const int64_t pitch = in.pitch(), blocks = block_count(in.columns);
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.owned() * 2 * pitch);
    const DeviceBuffer dh1_scales = output<float>("dh1_scale_inv", in.owned() * 2 * blocks);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.owned() * blocks);
    const DeviceBuffer act = output<uint8_t>("act_q", in.owned() * in.columns);
    const DeviceBuffer act_scales = output<float>("act_scale_inv", in.owned() * blocks);
    device::RowChainParams params{.input = up.h1.as<const void>(),
                                  .gradient = up.dact.as<const void>(),
                                  .probs = up.probs.as<const float>(),
                                  .counts = up.counts.as<const int32_t>(),
                                  .offs = up.offs.as<const int32_t>(),
                                  .output = dh1.as<void>(),
                                  .output_scale_inv = dh1_scales.as<float>(),
                                  .output_dprobs = dprobs.as<float>(),
                                  .rows = in.rows};
    RowChainSpec spec{.load = LoadStage::kGatedGradientRows,
                      .transform = TransformStage::kActivationBackward,
                      .quantize = QuantizeStage::k1x128,
                      .store = StoreStage::kGroupedGatedRows,
                      .columns = static_cast<int32_t>(in.columns),
                      .local_experts = static_cast<int32_t>(in.groups.counts.size()),
                      .epsilon = reference::kActivationEps,
                      .segments_in_flight = 1,
                      .pitch = pitch == in.columns ? 0 : static_cast<int32_t>(pitch),
                      .activation = in.activation};
    run(spec, 3, params,
        {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &dh1, &dh1_scales, &dprobs});
    spec.load = LoadStage::kGatedRows;
    spec.transform = TransformStage::kActivationProbability;
    spec.store = StoreStage::kGroupedRows;
    spec.pitch = 0;
    params.gradient = nullptr;
    params.output = act.as<void>();
    params.output_scale_inv = act_scales.as<float>();
    params.output_dprobs = nullptr;
    run(spec, 3, params, {&up.h1, &up.probs, &up.counts, &up.offs, &act, &act_scales});
    return {{in.owned(), 2 * pitch, dh1.download<uint8_t>(), dh1_scales.download<float>()},
            {in.owned(), in.columns, act.download<uint8_t>(), act_scales.download<float>()},
            dprobs.download<float>()};
  }

  // All in one kernel: the same rows, and what the transpose makes of them. What belongs to no
  // group is left alone.
  void expect_bits_of_rows_and_transposes(const Inputs& in,
                                          const compiler::GatedGradientSpec& knobs = {}) {
    const Rows wanted = rows_of(in);
    const int64_t pitch = in.pitch(), blocks = block_count(in.columns);
    const int64_t columns = in.output_columns();
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer output_offs = input("output_offs", in.groups.output_offs);
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.rows * 2 * pitch);
    const DeviceBuffer dh1_scales = output<float>("dh1_scale_inv", in.rows * 2 * blocks);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.rows * blocks);
    const DeviceBuffer dh1_colwise = output<uint8_t>("dh1_colwise_q", 2 * pitch * columns);
    const DeviceBuffer dh1_tiles =
        output<float>("dh1_colwise_scale_inv", 2 * blocks * columns / 128);
    const DeviceBuffer act_colwise = output<uint8_t>("act_colwise_q", in.columns * columns);
    const DeviceBuffer act_tiles = output<float>("act_colwise_scale_inv", blocks * columns / 128);
    const device::GatedGradientParams params{.input = up.h1.as<const void>(),
                                             .gradient = up.dact.as<const void>(),
                                             .probs = up.probs.as<const float>(),
                                             .counts = up.counts.as<const int32_t>(),
                                             .offs = up.offs.as<const int32_t>(),
                                             .output_offs = output_offs.as<const int32_t>(),
                                             .output = dh1.as<void>(),
                                             .output_scale_inv = dh1_scales.as<float>(),
                                             .output_dprobs = dprobs.as<float>(),
                                             .output_colwise = dh1_colwise.as<uint8_t>(),
                                             .output_colwise_scale_inv = dh1_tiles.as<float>(),
                                             .act_colwise = act_colwise.as<uint8_t>(),
                                             .act_colwise_scale_inv = act_tiles.as<float>(),
                                             .rows = in.rows,
                                             .output_columns = columns};
    const compiler::GatedGradientSpec spec{
        .local_experts = static_cast<int32_t>(in.groups.counts.size()),
        .columns = static_cast<int32_t>(in.columns),
        .epsilon = reference::kActivationEps,
        .threads = knobs.threads,
        .activation = in.activation,
        .threads_per_sm = knobs.threads_per_sm};
    run(spec, compiler::busy_ctas(spec, columns) + 1, params,
        {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &output_offs, &dh1, &dh1_scales,
         &dprobs, &dh1_colwise, &dh1_tiles, &act_colwise, &act_tiles});

    const auto expect_rows = [&]<typename T>(const DeviceBuffer& got, const std::vector<T>& rows) {
      EXPECT_EQ(head(got.download<T>(), std::ssize(rows)), rows);
      EXPECT_TRUE(untouched_from(got.download<T>(), std::ssize(rows)));
    };
    expect_rows(dh1, wanted.dh1.q);
    expect_rows(dh1_scales, wanted.dh1.scale_inv);
    expect_rows(dprobs, wanted.dprobs);
    const auto expect_transposed = [&](const QuantizedRows& rows, const DeviceBuffer& q,
                                       const DeviceBuffer& scale_inv) {
      const auto transposed =
          reference::transpose(rows, in.groups, columns, reference::Fp8Format::kE4m3,
                               reference::TransposeRule::kIdeal, kUntouched);
      EXPECT_TRUE(matches(compare_e4m3(
          {"q", columns}, reference::from_column_blocks(q.download<uint8_t>(), columns),
          transposed.bytes)));
      EXPECT_TRUE(matches(compare_f32({"scale_inv", columns / 128}, scale_inv.download<float>(),
                                      transposed.scale_inv)));
    };
    expect_transposed(wanted.dh1, dh1_colwise, dh1_tiles);
    expect_transposed(wanted.act, act_colwise, act_tiles);
  }

 private:
  UploadedGatedGradient upload(const Inputs& in) {
    return {in, [this](const char* name, const auto& values) { return input(name, values); }};
  }
};

TEST_F(GatedGradientKernel, HasTheBitsOfRowChainsAndTransposesForRowsOfAnyLength) {
  for (const int64_t columns : {16, 128, 176, 272}) {
    SCOPED_TRACE(columns);
    expect_bits_of_rows_and_transposes(random_gated_gradient(kGatedGradientCounts, columns));
  }
}

TEST_F(GatedGradientKernel, LeavesOutWhatIsOutsideOfRows) {
  Inputs in = random_gated_gradient(kGatedGradientCounts, 176);
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    if (!activation.reference.has_gate) continue;
    SCOPED_TRACE(activation.name);
    in.activation = activation.compiled;
    expect_bits_of_rows_and_transposes(in);
  }
}

TEST_F(GatedGradientKernel, DoesNotDependOnTheOrderOfThreads) {
  const Inputs in = random_gated_gradient(kGatedGradientCounts, 272);
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    open(seed);
    expect_bits_of_rows_and_transposes(in);
  }
}

// Of a pair of warps, which takes all three tiles, and of more pairs than there are tiles.
TEST_F(GatedGradientKernel, HasTheseBitsForAllCandidates) {
  const auto programs =
      programs_of(candidates_of(compiler::GatedGradientSpec{.columns = 272}, kManyRows));
  EXPECT_GE(programs.size(), 4U);
  for (std::size_t i = 1; i < programs.size(); ++i) {  // the first one elsewhere
    SCOPED_TRACE(to_string(programs[i]));
    expect_bits_of_rows_and_transposes(random_gated_gradient(kGatedGradientCounts, 272),
                                       programs[i]);
  }
}

TEST_F(GatedGradientKernel, TouchesNothingWhereAllGroupsAreEmpty) {
  expect_bits_of_rows_and_transposes(random_gated_gradient(kEmptyGatedGradientCounts, 272));
}

}  // namespace
}  // namespace moejit::testing
