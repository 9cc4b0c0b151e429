// SPDX-License-Identifier: Apache-2.0
// The column-wise cast of bf16 rows, in order and gathered, against the reference.
#include "compiler/launch.h"
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

using compiler::ColumnCastSpec;
using compiler::RowSource;
using reference::bf16_from_float;
using reference::TransposeGroups;

class ColumnCastKernel : public Chains {
 protected:
  // Compares the operand, and everything around it, with the reference's cast of `permuted`. The
  // kernel reads `rows`: these, or those of tokens that `row_tokens` names.
  void expect_equal(const Bf16Rows& permuted, const Bf16Rows& rows, const TransposeGroups& groups,
                    ColumnCastSpec spec, const std::vector<int32_t>& row_tokens = {},
                    bool shares_offs = false) {
    spec.local_experts = static_cast<int32_t>(groups.counts.size());
    spec.columns = static_cast<int32_t>(rows.columns);
    const int64_t columns = groups.output_offs.back() + 128;  // the last 128 belong to no group
    const auto wanted = reference::quantize_columns(permuted.values, rows.columns, groups, columns,
                                                    spec.epsilon, kUntouched);
    const DeviceBuffer values = input("rows", rows.values);
    const DeviceBuffer tokens = input("row_tokens", row_tokens);
    const DeviceBuffer counts = input("counts", groups.counts);
    const DeviceBuffer offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer q = output<uint8_t>("q", 2 * kGuardBytes + rows.columns * columns);
    const DeviceBuffer scale_inv = output<float>("q_scale_inv", columns / 128 * rows.columns + 8);
    const device::TransposeParams params{
        .input = values.as<const uint8_t>(),
        .row_tokens = tokens.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .output_offs = shares_offs ? offs.as<const int32_t>() : output_offs.as<const int32_t>(),
        .output = q.as<uint8_t>() + kGuardBytes,
        .output_scale_inv = scale_inv.as<float>(),
        .rows = permuted.count(),
        .output_columns = columns};
    run(spec, compiler::busy_ctas(spec, columns), params,
        {&values, &tokens, &counts, &offs, &output_offs, &q, &scale_inv});
    const std::vector<uint8_t> all = q.download<uint8_t>();
    EXPECT_TRUE(untouched_from(head(all, kGuardBytes), 0));
    EXPECT_TRUE(untouched_from(all, kGuardBytes + rows.columns * columns));
    EXPECT_TRUE(
        matches(compare_e4m3({"q", columns},
                             reference::from_column_blocks(
                                 {all.begin() + kGuardBytes, all.end() - kGuardBytes}, columns),
                             wanted.bytes)));
    EXPECT_TRUE(matches(compare_f32({"q_scale_inv", rows.columns},
                                    head(scale_inv.download<float>(), std::ssize(wanted.scale_inv)),
                                    wanted.scale_inv)));
    EXPECT_TRUE(untouched_from(scale_inv.download<float>(), std::ssize(wanted.scale_inv)));
  }
  void expect_equal(const Bf16Rows& rows, const TransposeGroups& groups,
                    const ColumnCastSpec& spec = {}) {
    expect_equal(rows, rows, groups, spec);
  }
};

TEST_F(ColumnCastKernel, EqualsTheReferenceForGroupsOfAnySize) {
  const TransposeGroups groups = groups_of(kTransposeCounts, 16);
  for (const int64_t columns : {16, 64, 128, 144, 208, 272}) {
    SCOPED_TRACE(columns);
    expect_equal(random_bf16_rows(groups, columns, 30, 1), groups);
  }
}

TEST_F(ColumnCastKernel, TakesColumnsThatStartWhereRowsDo) {
  for (const int32_t alignment : {128, 256}) {
    SCOPED_TRACE(alignment);
    TransposeGroups groups = groups_of({200, 0, 128, 3}, alignment);
    groups.output_offs = groups.offs;
    const Bf16Rows rows = random_bf16_rows(groups, 144, 4, 2);
    expect_equal(rows, rows, groups, {}, {}, true);
  }
}

// A column of a single block for each number: what decides its scale, and what casts to an edge.
TEST_F(ColumnCastKernel, HasTheScalesOfTheRuleAtItsSteps) {
  const TransposeGroups groups = groups_of({40}, 16);
  Bf16Rows rows = random_bf16_rows(groups, 512, 12, 3);
  const auto fill_column = [&](int64_t column, uint16_t largest) {
    for (int64_t row = 0; row < 40; ++row) {
      uint16_t& value = rows.at(row, column);
      if ((value & 0x7fff) > (largest & 0x7fff)) value = largest;
    }
    rows.at(column % 40, column) = largest;
  };
  int64_t column = 0;
  for (int exponent = -133; exponent < 120; exponent += 3) {  // 448 * 2^k and its neighbors
    const uint16_t step = bf16_from_float(std::ldexp(448.0f, exponent));
    for (const int offset : {-1, 0, 1}) fill_column(column++, static_cast<uint16_t>(step + offset));
  }
  for (const uint16_t largest : {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f,
                                 0x7f80, 0xff80, 0x43df, 0x43e0, 0x43e1})
    fill_column(column++, static_cast<uint16_t>(largest));
  ASSERT_LE(column, 512);
  expect_equal(rows, groups);
  expect_equal(rows, groups, {.epsilon = 1e-10f});
}

// NaN raises no scale and becomes NaN; infinity gives the scale 1.
TEST_F(ColumnCastKernel, PassesOverNaN) {
  const TransposeGroups groups = groups_of({130, 5}, 16);
  Bf16Rows rows = random_bf16_rows(groups, 144, 20, 4);
  for (int64_t row = 0; row < 130; ++row) rows.at(row, 3) = row % 2 == 0 ? kBf16Nan : 0xffff;
  for (int64_t row = 0; row < 130; row += 7) rows.at(row, 70) = 0x7f81;
  rows.at(1, 71) = kBf16Infinity;
  rows.at(129, 72) = 0xff80;
  for (int64_t row = 144; row < 149; ++row) rows.at(row, 140) = row % 2 == 0 ? 0x8000 : 0x0000;
  expect_equal(rows, groups);
}

TEST_F(ColumnCastKernel, GathersTheRowsOfTokens) {
  const TransposeGroups groups = groups_of(kTransposeCounts, 16);
  for (const RowSource source : {RowSource::kGathered, RowSource::kGatheredAll})
    for (const int64_t columns : {144, 400}) {  // one band of columns, and two
      SCOPED_TRACE(columns);
      const Bf16Rows tokens = random_bf16_rows(groups_of({50}, 16), columns, 12, 5);
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
      expect_equal(permuted, tokens, groups, {.source = source}, row_tokens);
    }
}

TEST_F(ColumnCastKernel, TakesMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 140;
  const TransposeGroups groups = groups_of(counts, 16);
  expect_equal(random_bf16_rows(groups, 16, 4, 8), groups);
}

TEST_F(ColumnCastKernel, GivesTheSameForAllCandidates) {
  const TransposeGroups groups = groups_of({300, 17, 0, 140}, 16);
  const Bf16Rows rows = random_bf16_rows(groups, 272, 6, 9);
  const auto programs = programs_of(candidates_of(ColumnCastSpec{.columns = 272}, kManyRows));
  EXPECT_GE(programs.size(), 4U);
  for (const ColumnCastSpec& spec : programs) {
    SCOPED_TRACE(to_string(spec));
    expect_equal(rows, groups, spec);
  }
}

TEST_F(ColumnCastKernel, DoesNotDependOnTheOrderOfThreads) {
  const TransposeGroups groups = groups_of({129, 7}, 16);
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    open(seed);
    expect_equal(random_bf16_rows(groups, 208, 6, 10), groups);
  }
}

TEST_F(ColumnCastKernel, TakesNoRows) {
  for (const std::vector<int32_t>& counts : {std::vector<int32_t>{0}, {0, 0, 0}}) {
    const TransposeGroups groups = groups_of(counts, 16);
    expect_equal(random_bf16_rows(groups, 144, 4, 11), groups);
  }
}

}  // namespace
}  // namespace moejit::testing
