// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/transpose.h"

#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/route_params.h"
#include "templates/moejit_device/params/transpose_params.h"
#include "tests/kernels/chains/candidate_programs.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/transpose_rows.h"
#include "tests/support/crc32.h"

#include <algorithm>
#include <cmath>

namespace moejit::testing {
namespace {

using compiler::DType;
using compiler::RowSource;
using compiler::TransposeRule;
using compiler::TransposeSpec;
using reference::block_count;
using reference::QuantizedRows;
using reference::TransposeGroups;

constexpr TransposeRule kRules[] = {TransposeRule::kIdeal, TransposeRule::kForkCompat};
constexpr DType kFormats[] = {DType::kF8E4M3, DType::kF8E5M2};

struct Choice {
  TransposeSpec spec;
  bool shares_offs = false;  // output_offs is offs
  bool reports = true;       // else there is no counter and no status word
  // Of tokens' rows: whose row each permuted one is, and which rows of zeros are ~token.
  std::vector<int32_t> row_tokens;
};

class TransposeKernel : public Chains {
 protected:
  // Everything around and inside the output, and the counter, equal the reference. Gives the
  // output.
  std::vector<uint8_t> expect_equal(const QuantizedRows& rows, const TransposeGroups& groups,
                                    Choice choice, uint32_t wanted_status = 0) {
    choice.spec.local_experts = static_cast<int32_t>(groups.counts.size());
    choice.spec.columns = static_cast<int32_t>(rows.cols);
    const int64_t columns = groups.output_offs.back() + 128;  // the last 128 belong to no group
    const auto wanted = reference::transpose(
        rows, groups, columns,
        choice.spec.format == DType::kF8E4M3 ? reference::Fp8Format::kE4m3
                                             : reference::Fp8Format::kE5m2,
        choice.spec.rule == TransposeRule::kForkCompat ? reference::TransposeRule::kForkCompat
                                                       : reference::TransposeRule::kIdeal,
        kUntouched);
    const Outputs got = transpose(rows, groups, choice, columns);
    EXPECT_TRUE(matches(compare_e4m3({"q", columns}, got.bytes, wanted.bytes)));
    const bool has_scales = choice.spec.rule != TransposeRule::kKeepBytes;
    const auto scales = compare_f32({"scales", columns / 128}, got.scale_inv, wanted.scale_inv);
    EXPECT_TRUE(has_scales ? matches(scales) : untouched_from(got.scale_inv, 0));
    EXPECT_EQ(got.flushed, choice.spec.counts_flushed && choice.reports ? wanted.flushed : 0);
    EXPECT_EQ(got.status, wanted_status);
    return got.bytes;
  }

  // Only what is reported, and that nothing around the output is touched.
  void expect_status(const QuantizedRows& rows, const TransposeGroups& groups, uint32_t wanted) {
    Choice choice;
    choice.spec.local_experts = static_cast<int32_t>(groups.counts.size());
    choice.spec.columns = static_cast<int32_t>(rows.cols);
    EXPECT_EQ(transpose(rows, groups, choice, groups.output_offs.back() + 128).status, wanted);
  }

  struct Outputs {
    std::vector<uint8_t> bytes;
    std::vector<float> scale_inv;
    uint64_t flushed = 0;
    uint32_t status = 0;
  };

  Outputs transpose(const QuantizedRows& rows, const TransposeGroups& groups, const Choice& choice,
                    int64_t columns) {
    const DeviceBuffer q = input("q", rows.q);
    const DeviceBuffer scale_inv = input("q_scale_inv", rows.scale_inv);
    const DeviceBuffer row_tokens = input("row_tokens", choice.row_tokens);
    const DeviceBuffer counts = input("counts", groups.counts);
    const DeviceBuffer offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer output = this->output<uint8_t>("t", 2 * kGuardBytes + rows.cols * columns);
    const DeviceBuffer output_scale_inv =
        this->output<float>("t_scale_inv", block_count(rows.cols) * (columns / 128) + 8);
    const DeviceBuffer flushed = this->output<uint64_t>("flushed", 1);
    const DeviceBuffer status = this->output<uint32_t>("status", 1);
    fill(flushed, 0);
    fill(status, 0);
    const device::TransposeParams params{
        .input = q.as<const uint8_t>(),
        .input_scale_inv = scale_inv.as<const float>(),
        .row_tokens = row_tokens.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .output_offs =
            choice.shares_offs ? offs.as<const int32_t>() : output_offs.as<const int32_t>(),
        .output = output.as<uint8_t>() + kGuardBytes,
        .output_scale_inv = output_scale_inv.as<float>(),
        .flushed = choice.reports ? flushed.as<uint64_t>() : nullptr,
        .status = choice.reports ? status.as<uint32_t>() : nullptr,
        .rows = choice.row_tokens.empty() ? rows.rows : std::ssize(choice.row_tokens),
        .output_columns = columns};
    run(choice.spec, compiler::busy_ctas(choice.spec, columns), params,
        {&q, &scale_inv, &row_tokens, &counts, &offs, &output_offs, &output, &output_scale_inv,
         &flushed, &status});
    const std::vector<uint8_t> all = output.download<uint8_t>();
    EXPECT_TRUE(untouched_from(head(all, kGuardBytes), 0));
    EXPECT_TRUE(untouched_from(all, kGuardBytes + rows.cols * columns));
    EXPECT_TRUE(untouched_from(output_scale_inv.download<float>(),
                               block_count(rows.cols) * (columns / 128)));
    return {.bytes = reference::from_column_blocks(
                {all.begin() + kGuardBytes, all.end() - kGuardBytes}, columns),
            .scale_inv =
                head(output_scale_inv.download<float>(), block_count(rows.cols) * (columns / 128)),
            .flushed = flushed.download<uint64_t>()[0],
            .status = status.download<uint32_t>()[0]};
  }
};

TEST_F(TransposeKernel, EqualsTheReferenceForGroupsOfAnySize) {
  const TransposeGroups groups = groups_of(kTransposeCounts, 16);
  for (const DType format : kFormats) {
    for (const TransposeRule rule : kRules) {
      for (const int64_t columns : {128, 272}) {
        SCOPED_TRACE(columns);
        expect_equal(random_rows(groups, columns, 4, 1), groups,
                     {.spec = {.format = format, .rule = rule}});
      }
    }
  }
}

// With one scale for all rows the ideal rule keeps every byte: here none is read or written.
TEST_F(TransposeKernel, KeepsTheBytesOfRowsThatShareAScale) {
  const TransposeGroups groups = groups_of(kTransposeCounts, 16);
  for (const int64_t columns : {16, 128, 272})
    expect_equal(random_rows(groups, columns, 0, 3), groups,
                 {.spec = {.rule = TransposeRule::kKeepBytes}});
}

TEST_F(TransposeKernel, TakesRowsOfAnyLength) {
  const TransposeGroups groups = usual_groups_of({3, 130}, 16);
  for (const int64_t columns : {16, 112, 128, 144, 640}) {
    SCOPED_TRACE(columns);
    expect_equal(random_rows(groups, columns, 4, 2), groups, {});
  }
}

// As many rows as there are scales in one: layouts that could be taken for each other.
TEST_F(TransposeKernel, TakesAsManyRowsAsARowHasScales) {
  const TransposeGroups groups = usual_groups_of({3}, 1);
  expect_equal(random_rows(groups, 272, 4, 3), groups, {});
}

// Row r is 2^r times quieter than row 0; columns are all 256 codes. Shifts 0 to 63: more than any
// value outlives.
TEST_F(TransposeKernel, MovesEveryCodeByEveryShift) {
  const TransposeGroups groups = groups_of({64}, 64);
  QuantizedRows rows = random_rows(groups, 256, 0, 4);
  for (size_t r = 0; r < 64; ++r) {
    for (size_t c = 0; c < 256; ++c) rows.q[r * 256 + c] = static_cast<uint8_t>(c);
    for (size_t b = 0; b < 2; ++b)
      rows.scale_inv[r * 2 + b] = std::ldexp(0x1p40f, -static_cast<int>(r));
  }
  for (const DType format : kFormats) {
    for (const TransposeRule rule : kRules) {
      const auto bytes = expect_equal(rows, groups, {.spec = {.format = format, .rule = rule}});
      if (format != DType::kF8E4M3) continue;
      std::vector<uint8_t> table;  // shifts 0 to 15, of each all codes
      for (size_t r = 0; r < 16; ++r)
        for (size_t c = 0; c < 256; ++c) table.push_back(bytes[c * (bytes.size() / 256) + r]);
      EXPECT_EQ(crc32(table), rule == TransposeRule::kIdeal ? 0xb7667346u : 0x50170c2cu);
    }
  }
}

// Rows of 2^-40 beside rows of zeros whose scale is 1, zeros of either sign; in the last block
// there are only zeros.
TEST_F(TransposeKernel, LetsRowsOfZerosNotFlushTheirTile) {
  const TransposeGroups groups = usual_groups_of({129, 20}, 16);
  QuantizedRows rows = random_rows(groups, 272, 2, 5);
  for (int64_t r = 0; r < groups.offs.back(); ++r) {
    for (int64_t b = 0; b < 3; ++b) {
      const bool is_zero = b == 2 || (r + b) % 3 == 0;
      rows.scale_inv[static_cast<size_t>(r * 3 + b)] = is_zero ? 1.0f : 0x1p-40f;
      for (int64_t c = 128 * b; is_zero && c < std::min<int64_t>(128 * b + 128, 272); ++c)
        rows.q[static_cast<size_t>(r * 272 + c)] = c % 2 == 0 ? 0x80 : 0x00;
    }
  }
  for (const DType format : kFormats)
    for (const TransposeRule rule : kRules)
      expect_equal(rows, groups, {.spec = {.format = format, .rule = rule}});
}

TEST_F(TransposeKernel, TakesScalesThatAreFarApart) {
  const TransposeGroups groups = usual_groups_of({200, 0, 70}, 16);
  for (const DType format : kFormats)
    for (const TransposeRule rule : kRules)
      expect_equal(random_rows(groups, 272, 60, 6), groups,
                   {.spec = {.format = format, .rule = rule}});
}

TEST_F(TransposeKernel, TakesTheSmallestScalesAndNone) {
  const TransposeGroups groups = usual_groups_of({20}, 16);
  QuantizedRows rows = random_rows(groups, 128, 0, 7);
  const float scales[] = {0x1p-127f, 0x1p-126f, 0x1p-125f, 0x1p-120f};
  for (size_t r = 0; r < 20; ++r) rows.scale_inv[r] = scales[r % 4];
  expect_equal(rows, groups, {});
  std::fill_n(rows.scale_inv.begin(), 20, 0.0f);
  std::fill_n(rows.q.begin(), 20 * 128, uint8_t{0});
  expect_equal(rows, groups, {});
}

TEST_F(TransposeKernel, CountsWhatBecomesZero) {
  const TransposeGroups groups = groups_of({200, 70}, 16);
  for (const DType format : kFormats) {
    for (const TransposeRule rule : kRules) {
      expect_equal(random_rows(groups, 144, 20, 8), groups,
                   {.spec = {.format = format, .rule = rule, .counts_flushed = true}});
    }
  }
}

TEST_F(TransposeKernel, ReportsScalesThatAreNoPowersOfTwo) {
  const TransposeGroups groups = usual_groups_of({20, 3}, 16);
  const float bad[] = {1.5f, 0x1.000002p-20f, 0x1p-128f, -0x1p-3f, INFINITY, NAN};
  for (const float scale : bad) {
    SCOPED_TRACE(scale);
    QuantizedRows rows = random_rows(groups, 272, 4, 9);
    rows.scale_inv[3 * 17 + 2] = scale;
    expect_status(rows, groups, device::kStatusBadScale);
  }
  QuantizedRows rows = random_rows(groups, 272, 4, 9);
  rows.scale_inv[3 * 25 + 2] = 1.5f;  // of a pad row
  expect_equal(rows, groups, {});
  rows.scale_inv[3 * 17 + 2] = 1.5f;  // what its exponent field says
  expect_equal(rows, groups, {}, device::kStatusBadScale);
}

TEST_F(TransposeKernel, ReportsNothingWithoutAPlaceForIt) {
  const TransposeGroups groups = groups_of({20, 0}, 16);
  QuantizedRows rows = random_rows(groups, 144, 20, 14);
  rows.scale_inv[3] = 1.5f;
  expect_equal(rows, groups, {.spec = {.counts_flushed = true}, .reports = false});
}

// A group that claims 40 rows of 30.
TEST_F(TransposeKernel, ReadsNoRowsBeyondTheLast) {
  TransposeGroups groups = groups_of({40}, 16);
  QuantizedRows rows = random_rows(groups, 144, 4, 15);
  rows.rows = 30;
  rows.q.resize(30 * 144);
  rows.scale_inv.resize(30 * 2);
  Choice choice{.spec = {.local_experts = 1, .columns = 144}};
  const Outputs got = transpose(rows, groups, choice, 128);
  groups.counts = {30};
  const auto wanted = reference::transpose(rows, groups, 128, reference::Fp8Format::kE4m3,
                                           reference::TransposeRule::kIdeal, kUntouched);
  EXPECT_TRUE(matches(compare_e4m3({"q", 128}, got.bytes, wanted.bytes)));
  EXPECT_TRUE(matches(compare_f32({"q_scale_inv", 1}, got.scale_inv, wanted.scale_inv)));
}

// In bands of four tiles: fewer, whole ones, and ends of one tile to three. Rows that are never
// zeros differ in what is read, not in bands: one band and two.
TEST_F(TransposeKernel, GathersRowsOfAnyLength) {
  const TransposeGroups groups = groups_of({130, 0, 17, 300}, 16);
  constexpr int64_t kTokens = 70;
  const std::vector<int32_t> row_tokens = random_row_tokens(groups, kTokens, 14);
  for (const int64_t columns : {16, 272, 512, 528, 784, 1024, 1424})
    for (const bool has_zeros : {true, false}) {
      if (!has_zeros && columns != 272 && columns != 784) continue;
      SCOPED_TRACE(columns);
      const QuantizedRows tokens = random_rows(groups_of({kTokens}, 1), columns, 4, 15);
      const int64_t output_columns = groups.output_offs.back() + 128;
      const auto wanted = reference::transpose(permuted(tokens, groups, row_tokens, has_zeros),
                                               groups, output_columns, reference::Fp8Format::kE4m3,
                                               reference::TransposeRule::kIdeal, kUntouched);
      const Outputs got =
          transpose(tokens, groups,
                    {.spec = {.source = has_zeros ? RowSource::kGathered : RowSource::kGatheredAll,
                              .local_experts = static_cast<int32_t>(groups.counts.size()),
                              .columns = static_cast<int32_t>(columns)},
                     .row_tokens = row_tokens},
                    output_columns);
      EXPECT_TRUE(matches(compare_e4m3({"q", output_columns}, got.bytes, wanted.bytes)));
      EXPECT_TRUE(matches(
          compare_f32({"q_scale_inv", output_columns / 128}, got.scale_inv, wanted.scale_inv)));
    }
}

// Groups farther apart than their columns reach: what is between belongs to none.
TEST_F(TransposeKernel, TakesInputOffsetsAsThoseOfTheOutput) {
  for (const int32_t alignment : {128, 384}) {
    TransposeGroups groups = usual_groups_of({100, 0, 128, 129}, alignment);
    groups.output_offs = groups.offs;
    expect_equal(random_rows(groups, 272, 4, 10), groups, {.shares_offs = true});
  }
}

TEST_F(TransposeKernel, TakesMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 140;
  const TransposeGroups groups = groups_of(counts, 16);
  expect_equal(random_rows(groups, 16, 4, 11), groups, {});
}

TEST_F(TransposeKernel, GivesTheSameForAllCandidates) {
  const TransposeGroups groups = usual_groups_of({300, 17, 0, 140}, 16);
  const QuantizedRows rows = random_rows(groups, 272, 6, 12);
  const auto programs = programs_of(candidates_of(TransposeSpec{.columns = 272}, kManyRows));
  EXPECT_GE(programs.size(), 4U);
  for (const TransposeSpec& spec : programs) {
    SCOPED_TRACE(to_string(spec));
    expect_equal(rows, groups, {.spec = spec});
  }
}

TEST_F(TransposeKernel, TakesNoRows) {
  for (const TransposeGroups& groups : {groups_of({0}, 16), usual_groups_of({}, 16)})
    expect_equal(random_rows(groups, 144, 4, 13), groups, {});
}

}  // namespace
}  // namespace moejit::testing
