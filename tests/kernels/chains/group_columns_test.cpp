// SPDX-License-Identifier: Apache-2.0
// Scales of columns that all rows of a group share, and casts with them, against the reference.
#include "compiler/kernels/group_columns.h"

#include "compiler/planner/candidates.h"
#include "runtime/reference/casts.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/transpose_params.h"
#include "tests/kernels/chains/bf16_rows.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/special_values.h"
#include "tests/kernels/chains/transpose_groups.h"

#include <cmath>

namespace moejit::testing {
namespace {

using compiler::ColumnPass;
using compiler::GroupColumnsSpec;
using compiler::RowSource;
using reference::bf16_from_float;
using reference::kRowEps;
using reference::TransposeGroups;

class GroupColumnsKernel : public Chains {
 protected:
  // Runs both passes and compares them, and all around what they write, with the reference for
  // `permuted`. The kernels read `rows`: these, or those of tokens that `row_tokens` names.
  void expect_equal(const Bf16Rows& permuted, const Bf16Rows& rows, const TransposeGroups& groups,
                    GroupColumnsSpec scales_spec, GroupColumnsSpec cast_spec,
                    const std::vector<int32_t>& row_tokens = {}) {
    for (GroupColumnsSpec* const spec : {&scales_spec, &cast_spec}) {
      spec->local_experts = static_cast<int32_t>(groups.counts.size());
      spec->columns = static_cast<int32_t>(rows.columns);
    }
    const int64_t columns = groups.output_offs.back() + 128;  // the last 128 belong to no group
    const auto wanted_scales =
        reference::group_column_scales(permuted.values, rows.columns, groups, scales_spec.epsilon);
    const auto wanted = reference::cast_columns(permuted.values, rows.columns, groups,
                                                wanted_scales, columns, kUntouched);
    const DeviceBuffer values = input("rows", rows.values);
    const DeviceBuffer tokens = input("row_tokens", row_tokens);
    const DeviceBuffer counts = input("counts", groups.counts);
    const DeviceBuffer offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer scale_inv = output<float>("q_scale_inv", std::ssize(wanted_scales) + 8);
    device::TransposeParams params{.input = values.as<const uint8_t>(),
                                   .row_tokens = tokens.as<const int32_t>(),
                                   .counts = counts.as<const int32_t>(),
                                   .offs = offs.as<const int32_t>(),
                                   .output_offs = output_offs.as<const int32_t>(),
                                   .output_scale_inv = scale_inv.as<float>(),
                                   .rows = permuted.count(),
                                   .output_columns = columns};
    run(scales_spec, compiler::busy_ctas(scales_spec, columns), params,
        {&values, &tokens, &counts, &offs, &output_offs, &scale_inv});
    EXPECT_TRUE(matches(compare_f32({"q_scale_inv", rows.columns},
                                    head(scale_inv.download<float>(), std::ssize(wanted_scales)),
                                    wanted_scales)));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), std::ssize(wanted_scales)));

    const DeviceBuffer known = input("q_scale_inv", wanted_scales);
    const DeviceBuffer q = output<uint8_t>("q", 2 * kGuardBytes + rows.columns * columns);
    params.input_scale_inv = known.as<const float>();
    params.output = q.as<uint8_t>() + kGuardBytes;
    params.output_scale_inv = nullptr;
    run(cast_spec, compiler::busy_ctas(cast_spec, columns), params,
        {&values, &tokens, &counts, &offs, &output_offs, &known, &q});
    const std::vector<uint8_t> all = q.download<uint8_t>();
    EXPECT_TRUE(untouched_from(head(all, kGuardBytes), 0));
    EXPECT_TRUE(untouched_from(all, kGuardBytes + rows.columns * columns));
    EXPECT_TRUE(
        matches(compare_e4m3({"q", columns},
                             reference::from_column_blocks(
                                 {all.begin() + kGuardBytes, all.end() - kGuardBytes}, columns),
                             wanted)));
  }
  void expect_equal(const Bf16Rows& rows, const TransposeGroups& groups, float epsilon = kRowEps) {
    expect_equal(rows, rows, groups, scales_of(epsilon), kCast);
  }
  static GroupColumnsSpec scales_of(float epsilon) {
    return {.pass = ColumnPass::kScales, .epsilon = epsilon, .threads = 256};
  }
  static constexpr GroupColumnsSpec kCast{.pass = ColumnPass::kCast};
};

TEST_F(GroupColumnsKernel, EqualTheReferenceForGroupsOfAnySize) {
  const TransposeGroups groups = groups_of(kTransposeCounts);
  for (const int64_t columns : {16, 64, 144, 208, 272}) {
    SCOPED_TRACE(columns);
    expect_equal(random_bf16_rows(groups, columns, 30, 1), groups);
  }
}

// A column for each number: what decides its scale, and what casts to an edge. The largest is in
// another row of each column, and beside it is NaN.
TEST_F(GroupColumnsKernel, HaveTheScalesOfTheRuleAtItsSteps) {
  const TransposeGroups groups = groups_of({140, 0, 3});
  Bf16Rows rows = random_bf16_rows(groups, 512, 12, 3);
  const auto fill_column = [&](int64_t column, uint16_t largest) {
    for (int64_t row = 0; row < 140; ++row) {
      uint16_t& value = rows.at(row, column);
      if ((value & 0x7fff) > (largest & 0x7fff)) value = largest;
    }
    rows.at(column * 11 % 140, column) = largest;
    rows.at((column * 11 + 1) % 140, column) = column % 2 == 0 ? kBf16Nan : 0xffff;
  };
  int64_t column = 0;
  for (int exponent = -133; exponent < 120; exponent += 3) {  // 448 * 2^k and its neighbors
    const uint16_t step = bf16_from_float(std::ldexp(448.0f, exponent));
    for (const int offset : {-1, 0, 1}) fill_column(column++, static_cast<uint16_t>(step + offset));
  }
  for (const uint16_t largest : {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f,
                                 0x7f80, 0xff80, 0x43df, 0x43e0, 0x43e1})
    fill_column(column++, static_cast<uint16_t>(largest));
  for (int64_t row = 0; row < 140; ++row) rows.at(row, column) = kBf16Nan;
  ASSERT_LT(column, 512);
  expect_equal(rows, groups);
  expect_equal(rows, groups, 0.0f);
}

TEST_F(GroupColumnsKernel, GatherTheRowsOfTokens) {
  const TransposeGroups groups = groups_of(kTransposeCounts);
  for (const RowSource source : {RowSource::kGathered, RowSource::kGatheredAll})
    for (const int64_t columns : {144, 400}) {  // one band of columns, and two
      SCOPED_TRACE(columns);
      const Bf16Rows tokens = random_bf16_rows(groups_of({50}), columns, 12, 5);
      Bf16Rows permuted = random_bf16_rows(groups, columns, 0, 6);
      std::vector<int32_t> row_tokens(static_cast<size_t>(permuted.count()), 0x7fffffff);
      const reference::RandomStream random(7, 2);
      for (size_t e = 0; e < groups.counts.size(); ++e)
        for (int32_t row = groups.offs[e]; row < groups.offs[e] + groups.counts[e]; ++row) {
          const auto token = static_cast<int32_t>(random.below(row, 50));
          const bool is_zeros = row % 5 == 0;
          row_tokens[static_cast<size_t>(row)] = is_zeros ? ~token : token;
          const bool has_zeros = is_zeros && source == RowSource::kGathered;
          for (int64_t column = 0; column < columns; ++column)
            permuted.at(row, column) =
                has_zeros ? uint16_t{0}
                          : tokens.values[static_cast<size_t>(token * columns + column)];
        }
      GroupColumnsSpec scales = scales_of(kRowEps), cast = kCast;
      scales.source = cast.source = source;
      expect_equal(permuted, tokens, groups, scales, cast, row_tokens);
    }
}

TEST_F(GroupColumnsKernel, TakeMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 140;
  const TransposeGroups groups = groups_of(counts);
  expect_equal(random_bf16_rows(groups, 16, 4, 8), groups);
}

TEST_F(GroupColumnsKernel, GiveTheSameForAllCandidates) {
  const TransposeGroups groups = groups_of({300, 17, 0, 140});
  const Bf16Rows rows = random_bf16_rows(groups, 272, 6, 9);
  const auto usual = [](GroupColumnsSpec spec) {
    spec.columns = 272;
    spec.local_experts = 4;
    return spec;
  };
  const auto scales = programs_of(candidates_of(usual(scales_of(kRowEps)), kManyRows));
  const auto casts = programs_of(candidates_of(usual(kCast), kManyRows));
  EXPECT_GE(scales.size(), 3U);
  EXPECT_GE(casts.size(), 4U);
  for (size_t i = 0; i < std::max(scales.size(), casts.size()); ++i)
    expect_equal(rows, rows, groups, scales[std::min(i, scales.size() - 1)],
                 casts[std::min(i, casts.size() - 1)]);
}

TEST_F(GroupColumnsKernel, DoNotDependOnTheOrderOfThreads) {
  const TransposeGroups groups = groups_of({129, 7});
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    open(seed);
    expect_equal(random_bf16_rows(groups, 208, 6, 10), groups);
  }
}

TEST_F(GroupColumnsKernel, TakeNoRows) {
  for (const std::vector<int32_t>& counts : {std::vector<int32_t>{0}, {0, 0, 0}}) {
    const TransposeGroups groups = groups_of(counts);
    expect_equal(random_bf16_rows(groups, 144, 4, 11), groups);
  }
}

// Groups that are matrices [matrices, rows, columns], whose operand is [matrices, columns, rows].
class MatrixColumnsKernel : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& weights, int32_t matrices, int32_t sections,
                    int32_t section_rows, int32_t columns, bool is_interleaved) {
    const int32_t rows = sections * section_rows;
    std::vector<uint16_t> transposed;
    for (int64_t e = 0; e < matrices; ++e)
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t row = 0; row < rows; ++row)
          transposed.push_back(weights[static_cast<size_t>((e * rows + row) * columns + column)]);
    const auto wanted = reference::quantize_rows(transposed, int64_t{matrices} * columns, rows);
    GroupColumnsSpec spec{.pass = ColumnPass::kScales,
                          .local_experts = matrices,
                          .columns = columns,
                          .sections = sections,
                          .section_rows = section_rows,
                          .is_interleaved = is_interleaved,
                          .epsilon = kRowEps};
    const DeviceBuffer w =
        input("w", is_interleaved ? reference::interleaved<uint16_t>(weights, section_rows, columns)
                                  : weights);
    const DeviceBuffer skip = input("skip", std::vector<uint32_t>{skip_});
    const DeviceBuffer scale_inv = output<float>("scale_inv", int64_t{matrices} * columns);
    device::TransposeParams params{.input = w.as<const uint8_t>(),
                                   .output_scale_inv = scale_inv.as<float>(),
                                   .skip = skip.as<const uint32_t>(),
                                   .rows = int64_t{matrices} * rows};
    run(spec, compiler::busy_ctas(spec, 0), params, {&w, &skip, &scale_inv});
    spec.pass = ColumnPass::kCast;
    const DeviceBuffer known = input("scale_inv", wanted.scale_inv);
    const DeviceBuffer q = output<uint8_t>("q", std::ssize(wanted.q));
    params.input_scale_inv = known.as<const float>();
    params.output = q.as<uint8_t>();
    params.output_scale_inv = nullptr;
    run(spec, compiler::busy_ctas(spec, 0), params, {&w, &skip, &known, &q});
    if (skip_ != 0) {
      EXPECT_TRUE(untouched_from(q.download<uint8_t>(), 0));
      EXPECT_TRUE(untouched_from(scale_inv.download<float>(), 0));
      return;
    }
    EXPECT_TRUE(matches(
        compare_f32({"scale_inv", columns}, scale_inv.download<float>(), wanted.scale_inv)));
    EXPECT_TRUE(matches(compare_e4m3({"q", rows}, q.download<uint8_t>(), wanted.q)));
  }
  uint32_t skip_ = 0;
};

TEST_F(MatrixColumnsKernel, EqualTheReferenceForMatricesOfAnySize) {
  for (const int32_t rows : {16, 128, 272})
    for (const int32_t columns : {16, 144}) {
      SCOPED_TRACE(rows);
      expect_equal(reference::random_weights(3, rows, columns, 1), 3, 1, rows, columns, false);
    }
}

// 9 strips of scales; 27 halves of tiles, two of them a CTA's.
TEST_F(MatrixColumnsKernel, EqualTheReferenceWithAnyNumberOfCtas) {
  for (const int64_t ctas : {4, 1}) {
    most_ctas_ = ctas;
    expect_equal(reference::random_weights(3, 272, 144, 1), 3, 1, 272, 144, false);
  }
}

TEST_F(MatrixColumnsKernel, SortRowsOfSectionsThatAlternate) {
  const auto weights = reference::random_weights(2, 2 * 80, 80, 2);
  for (const bool is_interleaved : {false, true})
    expect_equal(weights, 2, 2, 80, 80, is_interleaved);
}

TEST_F(MatrixColumnsKernel, WriteNothingWhereTheyAreSkipped) {
  skip_ = 1;
  expect_equal(reference::random_weights(2, 16, 48, 3), 2, 1, 16, 48, false);
}

}  // namespace
}  // namespace moejit::testing
