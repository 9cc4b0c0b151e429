// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the gradient of a gated activation and casts it and the activation by rows
// and by columns, against the row chains that round to bf16 and the reference of the casts.
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "templates/moejit_device/params/gated_gradient_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/gated_gradient_values.h"

namespace moejit::testing {
namespace {

using compiler::GatedGradientSpec;
using reference::block_count;

class GatedGradientColumnsKernel : public GatedGradientChains {
 protected:
  // All in one kernel: the casts of these values. What belongs to no group is left alone.
  void expect_casts_of_values(const Inputs& in, const GatedGradientSpec& knobs = {}) {
    const int64_t pitch = in.pitch(), blocks = block_count(in.columns);
    const Values values = values_of(in, pitch);
    const int64_t columns = in.output_columns();
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer output_offs = input("output_offs", in.groups.output_offs);
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.rows * 2 * pitch);
    const DeviceBuffer dh1_scales = output<float>("dh1_scale_inv", in.rows * 2 * blocks);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.rows * blocks);
    const DeviceBuffer dh1_colwise = output<uint8_t>("dh1_colwise_q", 2 * pitch * columns);
    const DeviceBuffer of_dh1 = output<float>("dh1_colwise_scale_inv", columns / 128 * 2 * pitch);
    const DeviceBuffer act_colwise = output<uint8_t>("act_colwise_q", in.columns * columns);
    const DeviceBuffer of_act = output<float>("act_colwise_scale_inv", columns / 128 * in.columns);
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
                                             .output_colwise_scale_inv = of_dh1.as<float>(),
                                             .act_colwise = act_colwise.as<uint8_t>(),
                                             .act_colwise_scale_inv = of_act.as<float>(),
                                             .rows = in.rows,
                                             .output_columns = columns};
    const GatedGradientSpec spec{.local_experts = static_cast<int32_t>(in.groups.counts.size()),
                                 .columns = static_cast<int32_t>(in.columns),
                                 .threads = knobs.threads,
                                 .casts_columns = true,
                                 .activation = in.activation,
                                 .threads_per_sm = knobs.threads_per_sm};
    run(spec, compiler::busy_ctas(spec, columns) + 1, params,
        {&up.h1, &up.dact, &up.probs, &up.counts, &up.offs, &output_offs, &dh1, &dh1_scales,
         &dprobs, &dh1_colwise, &of_dh1, &act_colwise, &of_act});

    expect_rows(in, values.dh1, dh1, dh1_scales);
    EXPECT_EQ(head(dprobs.download<float>(), std::ssize(values.dprobs)), values.dprobs);
    EXPECT_TRUE(untouched_from(dprobs.download<float>(), std::ssize(values.dprobs)));
    expect_columns(in, values.dh1, 2 * pitch, dh1_colwise, of_dh1);
    expect_columns(in, values.act, in.columns, act_colwise, of_act);
  }

 private:
  // Pad rows have the scale 0, and rows that belong to no group are left alone.
  static void expect_rows(const Inputs& in, const std::vector<uint16_t>& values,
                          const DeviceBuffer& q, const DeviceBuffer& scale_inv) {
    const int64_t columns = 2 * in.pitch(), blocks = columns / 128;
    reference::QuantizedRows wanted = reference::quantize_1x128(values, in.owned(), columns, 0.0F);
    for (size_t e = 0; e < in.groups.counts.size(); ++e)
      std::fill(wanted.scale_inv.begin() + (in.groups.offs[e] + in.groups.counts[e]) * blocks,
                wanted.scale_inv.begin() + in.groups.offs[e + 1] * blocks, 0.0F);
    EXPECT_TRUE(matches(compare_e4m3({"dh1_q", columns},
                                     head(q.download<uint8_t>(), std::ssize(wanted.q)), wanted.q)));
    EXPECT_TRUE(untouched_from(q.download<uint8_t>(), std::ssize(wanted.q)));
    EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", blocks},
                                    head(scale_inv.download<float>(), std::ssize(wanted.scale_inv)),
                                    wanted.scale_inv)));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), std::ssize(wanted.scale_inv)));
  }

  static void expect_columns(const Inputs& in, const std::vector<uint16_t>& values, int64_t columns,
                             const DeviceBuffer& q, const DeviceBuffer& scale_inv) {
    const reference::ColumnCast wanted = reference::quantize_columns(
        values, columns, in.groups, in.output_columns(), 0.0F, kUntouched);
    EXPECT_TRUE(matches(compare_e4m3(
        {"q", in.output_columns()},
        reference::from_column_blocks(q.download<uint8_t>(), in.output_columns()), wanted.bytes)));
    EXPECT_TRUE(matches(
        compare_f32({"scale_inv", columns}, scale_inv.download<float>(), wanted.scale_inv)));
  }
};

TEST_F(GatedGradientColumnsKernel, CastsTheValuesOfRowChainsForRowsOfAnyLength) {
  for (const int64_t columns : {16, 128, 176, 272}) {
    SCOPED_TRACE(columns);
    expect_casts_of_values(random_gated_gradient(kGatedGradientCounts, columns));
  }
}

TEST_F(GatedGradientColumnsKernel, CastsGroupsOfAnySize) {
  expect_casts_of_values(random_gated_gradient({1, 15, 16, 0, 127, 128, 129}, 272));
}

TEST_F(GatedGradientColumnsKernel, LeavesOutWhatIsOutsideOfRows) {
  Inputs in = random_gated_gradient(kGatedGradientCounts, 176);
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    if (!activation.reference.has_gate) continue;
    SCOPED_TRACE(activation.name);
    in.activation = activation.compiled;
    expect_casts_of_values(in);
  }
}

TEST_F(GatedGradientColumnsKernel, DoesNotDependOnTheOrderOfThreads) {
  const Inputs in = random_gated_gradient(kGatedGradientCounts, 272);
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    open(seed);
    expect_casts_of_values(in);
  }
}

// One pair of warps takes all halves of the tiles; then there are more pairs than halves.
TEST_F(GatedGradientColumnsKernel, HasTheseBitsForAllCandidates) {
  const auto programs = programs_of(
      candidates_of(GatedGradientSpec{.columns = 272, .casts_columns = true}, kManyRows));
  EXPECT_GE(programs.size(), 4U);
  for (std::size_t i = 1; i < programs.size(); ++i) {  // the first one elsewhere
    SCOPED_TRACE(to_string(programs[i]));
    expect_casts_of_values(random_gated_gradient(kGatedGradientCounts, 272), programs[i]);
  }
}

TEST_F(GatedGradientColumnsKernel, TouchesNothingWhereAllGroupsAreEmpty) {
  expect_casts_of_values(random_gated_gradient(kEmptyGatedGradientCounts, 272));
}

}  // namespace
}  // namespace moejit::testing
