// SPDX-License-Identifier: Apache-2.0
// Casts with E8M0 scales of 32 elements, by rows and by columns, and the swizzle of their scales,
// against the reference.
#include "compiler/launch.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/block_cast_params.h"
#include "templates/moejit_device/params/row_chain_params.h"
#include "templates/moejit_device/params/swizzle_scales_params.h"
#include "tests/kernels/chains/bf16_rows.h"
#include "tests/kernels/chains/cast_cases.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/special_values.h"
#include "tests/kernels/chains/transpose_groups.h"

#include <cmath>

namespace moejit::testing {
namespace {

using compiler::BlockCastSpec;
using compiler::CastResult;
using compiler::QuantizeStage;
using compiler::RowSource;
using reference::bf16_from_float;
using reference::MxMatrix;
using reference::TransposeGroups;

// Values whose groups of 32, by rows and by columns, have each an amax at an edge of the rule.
std::vector<uint16_t> rows_at_edges_of_mx(int64_t rows, int64_t columns) {
  std::vector<uint16_t> edges = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080,   0x7f7f, 0xff7f,
                                 0x7f80, 0xff80, 0x43df, 0x43e0, 0x43e1, kBf16Nan, 0xffff, 0x7f81};
  for (int exponent = -133; exponent < 120; exponent += 3) {  // 448 * 2^k and its neighbors
    const uint16_t step = bf16_from_float(std::ldexp(448.0f, exponent));
    for (const int offset : {-1, 0, 1}) edges.push_back(static_cast<uint16_t>(step + offset));
  }
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t group = i % columns / 32 + i / columns / 32 * ((columns + 31) / 32);
    const uint16_t edge = edges[static_cast<size_t>(group) % edges.size()];
    const int64_t place = (i / columns + i) % 32;
    // The edge itself once in a row and column of the group, smaller numbers elsewhere.
    values[static_cast<size_t>(i)] =
        place == 0 ? edge : static_cast<uint16_t>((edge & 0x7fff) >> (place % 4 + 1));
  }
  return values;
}

class BlockCastKernel : public Chains {
 protected:
  struct Case {
    std::vector<uint16_t> permuted;    // what is cast, pad rows anything
    std::vector<uint16_t> input = {};  // what is read; empty: `permuted`
    std::vector<int32_t> row_tokens = {};
    TransposeGroups groups = {};  // none: all rows are real
  };

  // Compares both outputs, as far as there are, and everything behind them with the reference.
  void expect_equal(const Case& of, int64_t columns, BlockCastSpec spec) {
    const bool has_groups = !of.groups.counts.empty();
    const int64_t all_rows = std::ssize(of.permuted) / columns;
    const int64_t rows = has_groups ? of.groups.offs.back() : all_rows;
    spec.columns = static_cast<int32_t>(columns);
    spec.local_experts = has_groups ? static_cast<int32_t>(of.groups.counts.size()) : 1;
    if (!has_groups) spec.matrix_rows = static_cast<int32_t>(rows);
    std::vector<uint16_t> values = head(of.permuted, rows * columns);
    if (has_groups)
      values = reference::with_zero_pads(values, columns, of.groups.counts, of.groups.offs);
    const DeviceBuffer x = input("x", of.input.empty() ? of.permuted : of.input);
    const DeviceBuffer tokens = input("row_tokens", of.row_tokens);
    const DeviceBuffer counts = input("counts", of.groups.counts);
    const DeviceBuffer offs = input("offs", of.groups.offs);
    const int64_t width = spec.result == CastResult::kCodes ? 1 : 2;
    const int64_t words = (columns + 127) / 128;
    const DeviceBuffer by_rows = output<uint8_t>("by_rows", width * all_rows * columns);
    const DeviceBuffer by_columns = output<uint8_t>("by_columns", width * all_rows * columns);
    const DeviceBuffer row_scales = output<uint8_t>("row_scales", all_rows * 4 * words);
    const DeviceBuffer column_scales =
        output<uint8_t>("column_scales", (all_rows + 31) / 32 * columns);
    const device::BlockCastParams params{.input = x.as<const uint8_t>(),
                                         .row_tokens = tokens.as<const int32_t>(),
                                         .counts = counts.as<const int32_t>(),
                                         .offs = offs.as<const int32_t>(),
                                         .output = by_rows.as<uint8_t>(),
                                         .output_scale_inv = row_scales.as<uint8_t>(),
                                         .output_colwise = by_columns.as<uint8_t>(),
                                         .output_colwise_scale_inv = column_scales.as<uint8_t>(),
                                         .rows = all_rows};
    const int64_t blocks = (all_rows + 31) / 32 * words;
    run(spec, (blocks + spec.threads / 32 - 1) / (spec.threads / 32), params,
        {&x, &tokens, &counts, &offs, &by_rows, &by_columns, &row_scales, &column_scales});
    const bool has_codes = spec.result == CastResult::kCodes;
    const auto compare = [&](const MxMatrix& wanted, const std::vector<uint16_t>& recovered,
                             const DeviceBuffer& data, const DeviceBuffer& scales) {
      if (has_codes) {
        EXPECT_TRUE(matches(compare_e4m3(
            {"codes", columns}, head(data.download<uint8_t>(), rows * columns), wanted.q)));
        const auto count = std::ssize(wanted.scale);
        EXPECT_TRUE(matches(compare_bytes({"scales", columns},
                                          head(scales.download<uint8_t>(), count), wanted.scale)));
        EXPECT_TRUE(untouched_from(scales.download<uint8_t>(), count));
      } else {
        EXPECT_TRUE(matches(compare_bf16(
            {"values", columns}, head(data.download<uint16_t>(), rows * columns), recovered)));
        EXPECT_TRUE(untouched_from(scales.download<uint8_t>(), 0));
      }
      EXPECT_TRUE(untouched_from(data.download<uint8_t>(), width * rows * columns));
    };
    if (spec.casts_rows) {
      const MxMatrix wanted = reference::quantize_mx_rows(values, rows, columns);
      compare(wanted, reference::mx_row_values(wanted), by_rows, row_scales);
    }
    if (spec.casts_columns) {
      const MxMatrix wanted = reference::quantize_mx_columns(values, rows, columns);
      compare(wanted, reference::mx_column_values(wanted), by_columns, column_scales);
    }
    if (!spec.casts_rows) {
      EXPECT_TRUE(untouched_from(by_rows.download<uint8_t>(), 0));
    }
    if (!spec.casts_columns) {
      EXPECT_TRUE(untouched_from(by_columns.download<uint8_t>(), 0));
    }
  }
};

TEST_F(BlockCastKernel, EqualsTheReferenceForGroupsOfAnySize) {
  const TransposeGroups groups = groups_of(kCastCounts, 32);
  for (const int64_t columns : {32, 96, 128, 160, 272})
    for (const CastResult result : kCastResults) {
      SCOPED_TRACE(columns);
      Case of{.permuted = random_bf16_rows(groups.offs.back() + 40, columns, 30, 1),
              .groups = groups};
      // What lies in pad rows has no say.
      for (size_t e = 0; e < groups.counts.size(); ++e)
        for (int64_t i = (groups.offs[e] + groups.counts[e]) * columns;
             i < groups.offs[e + 1] * columns; ++i)
          of.permuted[static_cast<size_t>(i)] = kBf16Infinity;
      expect_equal(of, columns, {.result = result, .casts_rows = true});
      // Each width is another kernel: one orientation has one below 128 columns and one above.
      if (columns == 96 || columns == 272) expect_equal(of, columns, {.result = result});
    }
}

TEST_F(BlockCastKernel, HasTheScalesOfTheRuleAtItsEdges) {
  for (const CastResult result : kCastResults)
    expect_equal({.permuted = rows_at_edges_of_mx(128, 2304)}, 2304,
                 {.result = result, .casts_rows = true});
}

TEST_F(BlockCastKernel, CastsMatricesByRowsAlone) {
  for (const CastResult result : kCastResults)
    for (const int64_t rows : {32, 96})
      expect_equal({.permuted = random_bf16_rows(rows, 144, 12, 3)}, 144,
                   {.result = result, .casts_rows = true, .casts_columns = false});
}

// 72 blocks on 20 warps and on 4; 6 blocks on 4.
TEST_F(BlockCastKernel, CastsMatricesWithAnyNumberOfCtas) {
  for (const int64_t ctas : {5, 1})
    for (const CastResult result : kCastResults) {
      most_ctas_ = ctas;
      expect_equal({.permuted = rows_at_edges_of_mx(128, 2304)}, 2304,
                   {.result = result, .casts_rows = true});
      expect_equal({.permuted = random_bf16_rows(96, 144, 12, 3)}, 144,
                   {.result = result, .casts_rows = true, .casts_columns = false});
    }
}

TEST_F(BlockCastKernel, GathersTheRowsOfTokens) {
  const TransposeGroups groups = groups_of(kCastCounts, 64);
  for (const RowSource source : {RowSource::kGathered, RowSource::kGatheredAll})
    for (const int64_t columns : {160, 672}) {  // one band of columns, and two
      SCOPED_TRACE(columns);
      const int64_t rows = groups.offs.back() + 64;
      Case of{.permuted = std::vector<uint16_t>(static_cast<size_t>(rows * columns)),
              .input = random_bf16_rows(50, columns, 12, 5),
              .row_tokens = std::vector<int32_t>(static_cast<size_t>(rows), 0x7fffffff),
              .groups = groups};
      const reference::RandomStream random(7, 2);
      for (size_t e = 0; e < groups.counts.size(); ++e)
        for (int32_t row = groups.offs[e]; row < groups.offs[e] + groups.counts[e]; ++row) {
          const auto token = static_cast<int32_t>(random.below(row, 50));
          const bool is_zeros = row % 5 == 0;
          of.row_tokens[static_cast<size_t>(row)] = is_zeros ? ~token : token;
          if (is_zeros && source == RowSource::kGathered) continue;
          std::copy_n(of.input.begin() + token * columns, columns,
                      of.permuted.begin() + row * columns);
        }
      expect_equal(of, columns, {.source = source, .result = CastResult::kValues});
    }
}

TEST_F(BlockCastKernel, TakesMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 40;
  const TransposeGroups groups = groups_of(counts, 32);
  expect_equal({.permuted = random_bf16_rows(groups.offs.back(), 32, 4, 8), .groups = groups}, 32,
               {});
}

TEST_F(BlockCastKernel, DoesNotDependOnThreadsOrTheirOrder) {
  const TransposeGroups groups = groups_of({129, 7}, 32);
  const Case of{.permuted = random_bf16_rows(groups.offs.back(), 416, 6, 10), .groups = groups};
  for (const uint64_t seed : {1, 2})
    for (const int32_t threads : {32, 256}) {
      open(seed);
      expect_equal(of, 416, {.casts_rows = true, .threads = threads});
    }
}

class SwizzleKernel : public Chains {
 protected:
  void expect_equal(const TransposeGroups& groups, int64_t columns, bool of_columns) {
    const int64_t rows = groups.offs.back(), output_rows = groups.output_offs.back() + 128;
    const std::vector<uint16_t> values = reference::with_zero_pads(
        random_bf16_rows(rows, columns, 30, 4), columns, groups.counts, groups.offs);
    const MxMatrix cast = of_columns ? reference::quantize_mx_columns(values, rows, columns)
                                     : reference::quantize_mx_rows(values, rows, columns);
    const DeviceBuffer scales = input("scales", cast.scale);
    const DeviceBuffer counts = input("counts", groups.counts);
    const DeviceBuffer offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const int64_t tiles = (columns + 127) / 128;
    const DeviceBuffer swizzled = output<uint8_t>("swizzled", output_rows / 128 * tiles * 512);
    const device::SwizzleScalesParams params{.input = scales.as<const uint8_t>(),
                                             .counts = counts.as<const int32_t>(),
                                             .offs = offs.as<const int32_t>(),
                                             .output_offs = output_offs.as<const int32_t>(),
                                             .output = swizzled.as<uint8_t>(),
                                             .rows = rows,
                                             .output_columns = output_rows};
    run(compiler::SwizzleScalesSpec{.of_columns = of_columns,
                                    .local_experts = static_cast<int32_t>(groups.counts.size()),
                                    .columns = static_cast<int32_t>(columns)},
        output_rows / 128 * ((tiles + 7) / 8), params,
        {&scales, &counts, &offs, &output_offs, &swizzled});
    EXPECT_TRUE(matches(compare_bytes(
        {"swizzled", 512}, swizzled.download<uint8_t>(),
        of_columns ? reference::swizzle_column_scales(cast, groups, output_rows, kUntouched)
                   : reference::swizzle_row_scales(cast, groups, output_rows, kUntouched))));
  }
};

TEST_F(SwizzleKernel, EqualsTheReferenceForGroupsOfAnySize) {
  for (const int64_t columns : {32, 160, 1184})
    for (const bool of_columns : {false, true}) {
      SCOPED_TRACE(columns);
      expect_equal(groups_of(kCastCounts, 32), columns, of_columns);
    }
}

TEST_F(SwizzleKernel, FillsTilesOfWiderGroupsWithZeros) {
  TransposeGroups groups = groups_of({200, 0, 128, 3}, 256);
  groups.output_offs = groups.offs;
  for (const bool of_columns : {false, true}) expect_equal(groups, 96, of_columns);
}

// The stages of row chains: rows in order, and rows that are permuted on the way.
class GroupRows : public Chains {
 protected:
  void expect_equal(const std::vector<uint16_t>& values, int64_t columns) {
    const int64_t rows = std::ssize(values) / columns, words = (columns + 127) / 128;
    const MxMatrix wanted = reference::quantize_mx_rows(values, rows, columns);
    const DeviceBuffer x = input("x", values);
    const DeviceBuffer q = output<uint8_t>("q", rows * columns);
    const DeviceBuffer scales = output<uint8_t>("scales", rows * words * 4);
    const DeviceBuffer recovered = output<uint16_t>("recovered", rows * columns);
    device::RowChainParams params{.input = x.as<const void>(),
                                  .output = q.as<void>(),
                                  .output_scale_inv = scales.as<float>(),
                                  .rows = rows};
    compiler::RowChainSpec spec{.quantize = QuantizeStage::k1x32,
                                .columns = static_cast<int32_t>(columns)};
    run(spec, 3, params, {&x, &q, &scales});
    EXPECT_TRUE(matches(compare_e4m3({"q", columns}, q.download<uint8_t>(), wanted.q)));
    EXPECT_TRUE(
        matches(compare_bytes({"scales", 4 * words}, scales.download<uint8_t>(), wanted.scale)));
    spec.quantize = QuantizeStage::k1x32Values;
    params.output = recovered.as<void>();
    params.output_scale_inv = nullptr;
    run(spec, 2, params, {&x, &recovered});
    EXPECT_TRUE(matches(compare_bf16({"values", columns}, recovered.download<uint16_t>(),
                                     reference::mx_row_values(wanted))));
  }
};

TEST_F(GroupRows, EqualTheReferenceForRowsOfAnyLength) {
  for (const int64_t columns : {16, 32, 96, 128, 160, 640, 2880}) {
    SCOPED_TRACE(columns);
    expect_equal(random_bf16_rows(19, columns, 30, 1), columns);
  }
}

TEST_F(GroupRows, HaveTheScalesOfTheRuleAtItsEdges) {
  expect_equal(rows_at_edges_of_mx(64, 4608), 4608);
}

// The amax of each row is another bf16 number: all of them from 0 to infinity.
TEST_F(GroupRows, FindTheScaleOfEveryAmax) {
  std::vector<uint16_t> values(size_t{0x7f81} * 32);
  for (size_t row = 0; row < 0x7f81; ++row) {
    uint16_t* const first = &values[row * 32];
    first[row % 32] = static_cast<uint16_t>(row | (row % 2 != 0 ? 0x8000 : 0));
    first[(row + 1) % 32] = static_cast<uint16_t>(row >> 1);
    first[(row + 2) % 32] = kBf16Nan;
  }
  expect_equal(values, 32);
}

}  // namespace
}  // namespace moejit::testing
