// SPDX-License-Identifier: Apache-2.0
// The three kernels that cast the gradient of a gated activation by rows and by columns, and the
// activation by columns, with one scale for a row and for a column of an expert: against the row
// chains that round to bf16 and the reference of such casts.
#include "compiler/kernels/group_columns.h"
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "templates/moejit_device/params/gated_gradient_params.h"
#include "templates/moejit_device/params/transpose_params.h"
#include "tests/kernels/chains/activation_cases.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/gated_gradient_values.h"

namespace moejit::testing {
namespace {

using compiler::GatedGradientSpec;
using compiler::GradientPass;
using compiler::GroupColumnsSpec;
using reference::block_count;
using reference::kRowEps;

// Which results are wanted beside the activation's.
struct Wanted {
  bool rows = true, dprobs = true, gradient_columns = true;
};

class GatedGradientPasses : public GatedGradientChains {
 protected:
  // Runs the pass that finds magnitudes, those that find scales of columns, and the pass that
  // casts; `knobs` are of the first and of the last one. What belongs to no group is left alone.
  void expect_casts_of_values(const Inputs& in, const GatedGradientSpec& knobs = {},
                              const Wanted& wanted = {}) {
    const Values values = values_of(in, in.columns);
    const UploadedGatedGradient up = upload(in);
    const DeviceBuffer output_offs = input("output_offs", in.groups.output_offs);
    const int64_t columns = in.output_columns(), blocks = block_count(in.columns);
    const DeviceBuffer row_amax = output<float>("dh1_amax", in.rows * blocks);
    const DeviceBuffer dh1_amax =
        output<uint16_t>("dh1_colwise_amax", columns / 128 * 2 * in.columns);
    const DeviceBuffer act_amax = output<uint16_t>("act_colwise_amax", columns / 128 * in.columns);
    device::GatedGradientParams params{.input = up.h1.as<const void>(),
                                       .gradient = up.dact.as<const void>(),
                                       .probs = up.probs.as<const float>(),
                                       .counts = up.counts.as<const int32_t>(),
                                       .offs = up.offs.as<const int32_t>(),
                                       .output_offs = output_offs.as<const int32_t>(),
                                       .rows = in.rows,
                                       .output_columns = columns};
    GatedGradientSpec spec{.local_experts = static_cast<int32_t>(in.groups.counts.size()),
                           .columns = static_cast<int32_t>(in.columns),
                           .epsilon = kRowEps,
                           .threads = knobs.threads,
                           .stores_rows = wanted.rows,
                           .tells_dprobs = wanted.dprobs,
                           .transposes_gradient = wanted.gradient_columns,
                           .casts_columns = true,
                           .pass = GradientPass::kAmax,
                           .activation = in.activation,
                           .threads_per_sm = knobs.threads_per_sm};
    const std::vector<const DeviceBuffer*> read = {&up.h1,     &up.dact, &up.probs,
                                                   &up.counts, &up.offs, &output_offs};
    const auto with = [&](std::vector<const DeviceBuffer*> more) {
      more.insert(more.begin(), read.begin(), read.end());
      return more;
    };
    device::GatedGradientParams amax = params;
    amax.output = wanted.rows ? row_amax.as<void>() : nullptr;
    amax.output_colwise = wanted.gradient_columns ? dh1_amax.as<uint8_t>() : nullptr;
    amax.act_colwise = act_amax.as<uint8_t>();
    run(spec, compiler::busy_ctas(spec, columns) + 1, amax,
        with({&row_amax, &dh1_amax, &act_amax}));
    expect_row_amax(in, values.dh1, wanted.rows, row_amax);
    expect_column_amax(in, values.dh1, 2 * in.columns, wanted.gradient_columns, dh1_amax);
    expect_column_amax(in, values.act, in.columns, true, act_amax);

    const DeviceBuffer of_dh1 = scales_of(in, 2 * in.columns, dh1_amax, wanted.gradient_columns);
    const DeviceBuffer of_act = scales_of(in, in.columns, act_amax, true);
    const DeviceBuffer dh1 = output<uint8_t>("dh1_q", in.rows * 2 * in.columns);
    const DeviceBuffer dh1_scales = output<float>("dh1_scale_inv", in.rows);
    const DeviceBuffer dprobs = output<float>("dprobs_blocks", in.rows * blocks);
    const DeviceBuffer dh1_colwise = output<uint8_t>("dh1_colwise_q", 2 * in.columns * columns);
    const DeviceBuffer act_colwise = output<uint8_t>("act_colwise_q", in.columns * columns);
    params.row_amax = wanted.rows ? row_amax.as<const float>() : nullptr;
    params.column_scale_inv = wanted.gradient_columns ? of_dh1.as<const float>() : nullptr;
    params.act_column_scale_inv = of_act.as<const float>();
    params.output = wanted.rows ? dh1.as<void>() : nullptr;
    params.output_scale_inv = wanted.rows ? dh1_scales.as<float>() : nullptr;
    params.output_dprobs = wanted.dprobs ? dprobs.as<float>() : nullptr;
    params.output_colwise = wanted.gradient_columns ? dh1_colwise.as<uint8_t>() : nullptr;
    params.act_colwise = act_colwise.as<uint8_t>();
    spec.pass = GradientPass::kCast;
    run(spec, compiler::busy_ctas(spec, columns) + 1, params,
        with(
            {&row_amax, &of_dh1, &of_act, &dh1, &dh1_scales, &dprobs, &dh1_colwise, &act_colwise}));
    expect_rows(in, values.dh1, wanted.rows, dh1, dh1_scales);
    expect_dprobs(values, wanted.dprobs, dprobs);
    if (wanted.gradient_columns)
      expect_columns(in, values.dh1, 2 * in.columns, dh1_colwise, of_dh1);
    else
      EXPECT_TRUE(untouched_from(dh1_colwise.download<uint8_t>(), 0));
    expect_columns(in, values.act, in.columns, act_colwise, of_act);
  }

 private:
  // Runs the pass that finds scales of magnitudes, if there are some.
  DeviceBuffer scales_of(const Inputs& in, int64_t columns, const DeviceBuffer& amax, bool exist) {
    const auto experts = static_cast<int32_t>(in.groups.counts.size());
    DeviceBuffer scale_inv = output<float>("colwise_scale_inv", experts * columns);
    if (!exist) return scale_inv;
    const DeviceBuffer counts = input("counts", in.groups.counts);
    const DeviceBuffer offs = input("offs", in.groups.offs);
    const DeviceBuffer output_offs = input("output_offs", in.groups.output_offs);
    const device::TransposeParams params{.input = amax.as<const uint8_t>(),
                                         .counts = counts.as<const int32_t>(),
                                         .offs = offs.as<const int32_t>(),
                                         .output_offs = output_offs.as<const int32_t>(),
                                         .output_scale_inv = scale_inv.as<float>(),
                                         .rows = in.rows,
                                         .output_columns = in.output_columns()};
    const GroupColumnsSpec spec{.pass = compiler::ColumnPass::kScales,
                                .local_experts = experts,
                                .columns = static_cast<int32_t>(columns),
                                .has_amax_rows = true,
                                .epsilon = kRowEps,
                                .threads = 64};
    run(spec, compiler::busy_ctas(spec, in.output_columns()), params,
        {&amax, &counts, &offs, &output_offs, &scale_inv});
    return scale_inv;
  }

  static float magnitude(uint16_t value) {
    const float magnitude = std::fabs(reference::float_from_bf16(value));
    return std::isnan(magnitude) ? 0.0F : magnitude;
  }

  // Calls visit(row) for each real row of a group.
  template <typename Visit>
  static void for_each_row(const Inputs& in, const Visit& visit) {
    for (size_t e = 0; e < in.groups.counts.size(); ++e)
      for (int64_t i = 0; i < in.groups.counts[e]; ++i)
        visit(in.groups.offs[e] + i, in.groups.output_offs[e] + i);
  }

  static void expect_row_amax(const Inputs& in, const std::vector<uint16_t>& dh1, bool exist,
                              const DeviceBuffer& amax) {
    const int64_t blocks = block_count(in.columns);
    std::vector<float> got = amax.download<float>(), wanted = output_of<float>(got.size());
    for_each_row(in, [&](int64_t row, int64_t) {
      for (int64_t block = 0; block < blocks && exist; ++block) {
        float largest = 0.0F;
        for (int64_t i = block * 128; i < std::min(in.columns, (block + 1) * 128); ++i)
          for (const int64_t half : {int64_t{0}, in.columns})
            largest = std::max(
                largest, magnitude(dh1[static_cast<size_t>(row * 2 * in.columns + half + i)]));
        wanted[static_cast<size_t>(row * blocks + block)] = largest;
      }
    });
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0);
  }

  static void expect_column_amax(const Inputs& in, const std::vector<uint16_t>& values,
                                 int64_t columns, bool exist, const DeviceBuffer& amax) {
    const std::vector<uint16_t> got = amax.download<uint16_t>();
    std::vector<uint16_t> wanted = output_of<uint16_t>(got.size());
    std::vector<float> largest(got.size(), -1.0F);
    for_each_row(in, [&](int64_t row, int64_t output_column) {
      for (int64_t i = 0; i < columns && exist; ++i) {
        const auto at = static_cast<size_t>(output_column / 128 * columns + i);
        largest[at] =
            std::max(largest[at], magnitude(values[static_cast<size_t>(row * columns + i)]));
        wanted[at] = reference::bf16_from_float(largest[at]);
      }
    });
    EXPECT_TRUE(matches(compare_bf16({"amax", columns}, got, wanted)));
  }

  template <typename T>
  static std::vector<T> output_of(size_t count) {
    std::vector<T> values(count);
    std::memset(values.data(), kUntouched, count * sizeof(T));
    return values;
  }

  // Pad rows have the scale 0, and rows that belong to no group are left alone.
  static void expect_rows(const Inputs& in, const std::vector<uint16_t>& values, bool exist,
                          const DeviceBuffer& q, const DeviceBuffer& scale_inv) {
    const int64_t columns = 2 * in.columns, owned = exist ? in.owned() : 0;
    EXPECT_TRUE(untouched_from(q.download<uint8_t>(), owned * columns));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), owned));
    if (!exist) return;
    reference::QuantizedRows wanted = reference::quantize_rows(values, owned, columns);
    for (size_t e = 0; e < in.groups.counts.size(); ++e)
      std::fill(wanted.scale_inv.begin() + in.groups.offs[e] + in.groups.counts[e],
                wanted.scale_inv.begin() + in.groups.offs[e + 1], 0.0F);
    EXPECT_TRUE(matches(
        compare_e4m3({"dh1_q", columns}, head(q.download<uint8_t>(), owned * columns), wanted.q)));
    EXPECT_TRUE(matches(compare_f32({"dh1_scale_inv", 1}, head(scale_inv.download<float>(), owned),
                                    wanted.scale_inv)));
  }

  static void expect_dprobs(const Values& values, bool exist, const DeviceBuffer& dprobs) {
    const int64_t count = exist ? std::ssize(values.dprobs) : 0;
    EXPECT_TRUE(untouched_from(dprobs.download<float>(), count));
    EXPECT_TRUE(matches(compare_f32({"dprobs", 1}, head(dprobs.download<float>(), count),
                                    head(values.dprobs, count))));
  }

  static void expect_columns(const Inputs& in, const std::vector<uint16_t>& values, int64_t columns,
                             const DeviceBuffer& q, const DeviceBuffer& scale_inv) {
    const std::vector<float> scales =
        reference::group_column_scales(values, columns, in.groups, kRowEps);
    EXPECT_TRUE(
        matches(compare_f32({"colwise_scale_inv", columns}, scale_inv.download<float>(), scales)));
    const std::vector<uint8_t> wanted = reference::cast_columns(values, columns, in.groups, scales,
                                                                in.output_columns(), kUntouched);
    EXPECT_TRUE(matches(compare_e4m3(
        {"colwise_q", in.output_columns()},
        reference::from_column_blocks(q.download<uint8_t>(), in.output_columns()), wanted)));
  }
};

TEST_F(GatedGradientPasses, CastTheValuesOfRowChainsForRowsOfAnyLength) {
  for (const int64_t columns : {16, 128, 176, 272}) {
    SCOPED_TRACE(columns);
    expect_casts_of_values(random_gated_gradient(kGatedGradientCounts, columns));
  }
}

// More segments than a row has lanes.
TEST_F(GatedGradientPasses, FindTheScaleOfALongRow) {
  expect_casts_of_values(random_gated_gradient({0, 5, 2}, 1168));
}

TEST_F(GatedGradientPasses, CastGroupsOfAnySize) {
  expect_casts_of_values(random_gated_gradient({1, 15, 16, 127, 128, 129, 300}, 272));
}

// Rows and columns differ in magnitude, and one of each has what counts as nothing, or is infinite.
TEST_F(GatedGradientPasses, HaveTheScalesOfTheLargestMagnitudes) {
  Inputs in = random_gated_gradient({200, 0, 40, 0, 0, 0, 0}, 272);
  const reference::RandomStream random(5, 1);
  for (int64_t row = 0; row < in.rows; ++row)
    for (int64_t i = 0; i < in.columns; ++i) {
      uint16_t& value = in.dact[static_cast<size_t>(row * in.columns + i)];
      const auto exponent = static_cast<int>(random.below(row, 20) + random.below(~i, 20));
      value = reference::bf16_from_float(std::ldexp(reference::float_from_bf16(value), -exponent));
    }
  in.dact[7 * 272 + 3] = 0x7fc0;
  in.dact[9 * 272 + 200] = 0x7f80;
  for (int64_t i = 0; i < in.columns; ++i) in.dact[static_cast<size_t>(11 * 272 + i)] = 0xffff;
  expect_casts_of_values(in);
}

TEST_F(GatedGradientPasses, LeaveOutWhatIsOutsideOfRows) {
  Inputs in = random_gated_gradient(kGatedGradientCounts, 176);
  for (const ActivationCase& activation : cases_not_zero_at_zero()) {
    if (!activation.reference.has_gate) continue;
    SCOPED_TRACE(activation.name);
    in.activation = activation.compiled;
    expect_casts_of_values(in);
  }
}

TEST_F(GatedGradientPasses, LeaveOutWhatIsNotWanted) {
  const Inputs in = random_gated_gradient(kGatedGradientCounts, 176);
  expect_casts_of_values(in, {}, {.rows = true, .dprobs = false, .gradient_columns = false});
  expect_casts_of_values(in, {}, {.rows = true, .dprobs = true, .gradient_columns = false});
  expect_casts_of_values(in, {}, {.rows = true, .dprobs = false, .gradient_columns = true});
  expect_casts_of_values(in, {}, {.rows = false, .dprobs = true, .gradient_columns = true});
  expect_casts_of_values(in, {}, {.rows = false, .dprobs = false, .gradient_columns = true});
}

TEST_F(GatedGradientPasses, DoNotDependOnTheOrderOfThreads) {
  const Inputs in = random_gated_gradient(kGatedGradientCounts, 272);
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    open(seed);
    expect_casts_of_values(in);
  }
}

TEST_F(GatedGradientPasses, HaveTheseBitsForAllCandidates) {
  for (const GradientPass pass : {GradientPass::kAmax, GradientPass::kCast}) {
    const auto programs = programs_of(candidates_of(
        GatedGradientSpec{.columns = 272, .casts_columns = true, .pass = pass}, kManyRows));
    EXPECT_GE(programs.size(), 4U);
    if (pass == GradientPass::kCast) continue;  // the threads are those of both passes
    for (size_t i = 1; i < programs.size(); ++i) {
      SCOPED_TRACE(to_string(programs[i]));
      expect_casts_of_values(random_gated_gradient(kGatedGradientCounts, 272), programs[i]);
    }
  }
}

TEST_F(GatedGradientPasses, TouchNothingWhereAllGroupsAreEmpty) {
  expect_casts_of_values(random_gated_gradient(kEmptyGatedGradientCounts, 272));
}

}  // namespace
}  // namespace moejit::testing
