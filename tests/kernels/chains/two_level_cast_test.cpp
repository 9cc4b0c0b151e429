// SPDX-License-Identifier: Apache-2.0
// Casts to E2M1 with scales on two levels, by rows, by columns and in tiles, against the reference.
#include "compiler/launch.h"
#include "runtime/reference/microscaling.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/transpose.h"
#include "runtime/reference/two_level.h"
#include "templates/moejit_device/params/two_level_cast_params.h"
#include "tests/kernels/chains/bf16_rows.h"
#include "tests/kernels/chains/cast_cases.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/kernels/chains/special_values.h"

#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::CastResult;
using compiler::RowSource;
using compiler::TwoLevelCastSpec;
using reference::bf16_from_float;
using reference::TransposeGroups;
using reference::TwoLevelBlocks;
using reference::TwoLevelMatrix;

// Groups of so many rows that start at multiples of `alignment`.
TransposeGroups groups_of_rows(const std::vector<int32_t>& counts, int32_t alignment) {
  TransposeGroups groups{.counts = counts, .offs = {0}, .output_offs = {}};
  for (const int32_t count : counts)
    groups.offs.push_back((groups.offs.back() + count + alignment - 1) / alignment * alignment);
  return groups;
}

// Values whose blocks of 16, by rows, by columns and in tiles, have each an amax at an edge of the
// rule: zeros, subnormals, the ends of bf16, neighbors of 6 times a power of two, NaN, infinities.
std::vector<uint16_t> rows_at_edges_of_two_levels(int64_t rows, int64_t columns) {
  std::vector<uint16_t> edges = {0x0000, 0x8000, 0x0001, 0x8001,   0x007f, 0x0080, 0x7f7f,
                                 0xff7f, 0x7f80, 0xff80, kBf16Nan, 0xffff, 0x7f81};
  for (int exponent = -133; exponent < 120; exponent += 2)
    for (const float step : {6.0f, 3.5f, 5.0f})
      for (const int offset : {-1, 0, 1})
        edges.push_back(
            static_cast<uint16_t>(bf16_from_float(std::ldexp(step, exponent)) + offset));
  std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t block = i % columns / 16 + i / columns / 16 * ((columns + 15) / 16);
    const uint16_t edge = edges[static_cast<size_t>(block) % edges.size()];
    const int64_t place = (i / columns + i) % 16;
    // The edge itself once in a row and column of the block, smaller numbers elsewhere.
    values[static_cast<size_t>(i)] =
        place == 0 ? edge : static_cast<uint16_t>(((edge & 0x7fff) - 0x40 * (place % 5)) & 0x7fff);
  }
  return values;
}

class TwoLevelCastKernel : public Chains {
 protected:
  struct Case {
    std::vector<uint16_t> permuted;    // what is cast, pad rows anything
    std::vector<uint16_t> input = {};  // what is read; empty: `permuted`
    std::vector<int32_t> row_tokens = {};
    TransposeGroups groups = {};            // none: all rows are real
    int64_t matrix_rows = 0;                // without groups: 0, or rows of each matrix
    std::vector<float> expert_scales = {};  // empty: those of the rule
  };

  struct Part {
    int64_t first, rows;
  };
  static std::vector<Part> parts_of(const Case& of, int64_t all_rows) {
    std::vector<Part> parts;
    for (size_t e = 0; e < of.groups.counts.size(); ++e)
      parts.push_back({of.groups.offs[e], of.groups.offs[e + 1] - of.groups.offs[e]});
    if (!parts.empty()) return parts;
    const int64_t rows = of.matrix_rows > 0 ? of.matrix_rows : all_rows;
    for (int64_t first = 0; first < all_rows; first += rows) parts.push_back({first, rows});
    return parts;
  }

  // Casts each part with its scale; matrices behind each other.
  static std::vector<TwoLevelMatrix> wanted_of(const std::vector<uint16_t>& values,
                                               const std::vector<Part>& parts, int64_t columns,
                                               const std::vector<float>& scales,
                                               TwoLevelBlocks blocks) {
    std::vector<TwoLevelMatrix> matrices;
    for (size_t e = 0; e < parts.size(); ++e)
      matrices.push_back(reference::quantize_two_levels(
          std::span(values).subspan(static_cast<size_t>(parts[e].first * columns),
                                    static_cast<size_t>(parts[e].rows * columns)),
          parts[e].rows, columns, scales[e], blocks));
    return matrices;
  }
  static TwoLevelMatrix joined(const std::vector<TwoLevelMatrix>& matrices) {
    TwoLevelMatrix all{.rows = 0, .cols = matrices.front().cols, .codes = {}, .scales = {}};
    for (const TwoLevelMatrix& one : matrices) {
      all.rows += one.rows;
      all.codes.insert(all.codes.end(), one.codes.begin(), one.codes.end());
      all.scales.insert(all.scales.end(), one.scales.begin(), one.scales.end());
    }
    return all;
  }

  static std::vector<float> scales_of(const std::vector<uint16_t>& values,
                                      const std::vector<Part>& parts, int64_t columns) {
    std::vector<float> scales;
    for (const Part& part : parts)
      scales.push_back(
          reference::two_level_expert_scale(reference::amax_of_bf16(std::span(values).subspan(
                                                static_cast<size_t>(part.first * columns),
                                                static_cast<size_t>(part.rows * columns))))
              .scale);
    return scales;
  }

  void expect_bytes(std::string_view name, const DeviceBuffer& buffer,
                    const std::vector<uint8_t>& wanted, int64_t columns) {
    const std::vector<uint8_t> got = buffer.download<uint8_t>();
    const auto count = std::ssize(wanted);
    EXPECT_TRUE(matches(compare_bytes({name, columns}, head(got, count), wanted)));
    EXPECT_TRUE(untouched_from(got, count)) << name;
  }

  // Compares both outputs, as far as there are, and everything behind them with the reference.
  void expect_equal(const Case& of, int64_t columns, TwoLevelCastSpec spec) {
    const bool has_groups = !of.groups.counts.empty();
    const int64_t all_rows = std::ssize(of.permuted) / columns;
    const int64_t rows = has_groups ? of.groups.offs.back() : all_rows;
    spec.columns = static_cast<int32_t>(columns);
    spec.matrix_rows = static_cast<int32_t>(of.matrix_rows);
    spec.local_experts =
        has_groups ? static_cast<int32_t>(of.groups.counts.size())
                   : static_cast<int32_t>(of.matrix_rows > 0 ? all_rows / of.matrix_rows : 0);
    std::vector<uint16_t> values = head(of.permuted, rows * columns);
    if (has_groups)
      values = reference::with_zero_pads(values, columns, of.groups.counts, of.groups.offs);
    const std::vector<Part> parts = parts_of(of, all_rows);
    const std::vector<float> expert_scales =
        of.expert_scales.empty() ? scales_of(values, parts, columns) : of.expert_scales;
    const DeviceBuffer x = input("x", of.input.empty() ? of.permuted : of.input);
    const DeviceBuffer tokens = input("row_tokens", of.row_tokens);
    const DeviceBuffer counts = input("counts", of.groups.counts);
    const DeviceBuffer offs = input("offs", of.groups.offs);
    const DeviceBuffer scales = input("expert_scales", expert_scales);
    const bool has_codes = spec.result == CastResult::kCodes;
    const int64_t pitch = compiler::two_level_pitch(all_rows);
    const int64_t row_bytes = has_codes ? columns / 2 : 2 * columns;
    const DeviceBuffer by_rows = output<uint8_t>("by_rows", all_rows * row_bytes);
    const DeviceBuffer by_columns =
        output<uint8_t>("by_columns", has_codes ? columns * pitch / 2 : all_rows * row_bytes);
    const int64_t row_scales = 8 * ((columns + 127) / 128);
    const DeviceBuffer scales_by_rows = output<uint8_t>("row_scales", all_rows * row_scales);
    const DeviceBuffer scales_by_columns = output<uint8_t>("column_scales", columns * pitch / 16);
    const device::TwoLevelCastParams params{
        .input = x.as<const uint8_t>(),
        .row_tokens = tokens.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .expert_scales = scales.as<const float>(),
        .output = by_rows.as<uint8_t>(),
        .output_scale_inv = scales_by_rows.as<uint8_t>(),
        .output_colwise = by_columns.as<uint8_t>(),
        .output_colwise_scale_inv = scales_by_columns.as<uint8_t>(),
        .rows = all_rows,
        .pitch = pitch};
    const int64_t stripes = (all_rows + 15) / 16 * ((columns + 127) / 128);
    run(spec, (stripes + spec.threads / 32 - 1) / (spec.threads / 32), params,
        {&x, &tokens, &counts, &offs, &scales, &by_rows, &by_columns, &scales_by_rows,
         &scales_by_columns});
    const auto blocks = [&](TwoLevelBlocks of_lines) {
      return spec.has_tiles ? TwoLevelBlocks::kTiles : of_lines;
    };
    if (spec.casts_rows) {
      const TwoLevelMatrix wanted =
          joined(wanted_of(values, parts, columns, expert_scales, blocks(TwoLevelBlocks::kRows)));
      if (has_codes) {
        expect_bytes("codes", by_rows, reference::packed_row_codes(wanted), row_bytes);
        expect_bytes("scales", scales_by_rows, reference::row_scales(wanted), row_scales);
      } else {
        EXPECT_TRUE(matches(compare_bf16({"values", columns},
                                         head(by_rows.download<uint16_t>(), rows * columns),
                                         reference::two_level_values(wanted))));
        EXPECT_TRUE(untouched_from(by_rows.download<uint8_t>(), rows * row_bytes));
      }
    }
    if (spec.casts_columns) {
      const std::vector<TwoLevelMatrix> wanted =
          wanted_of(values, parts, columns, expert_scales, blocks(TwoLevelBlocks::kColumns));
      if (!has_codes) {
        EXPECT_TRUE(matches(compare_bf16({"values by columns", columns},
                                         head(by_columns.download<uint16_t>(), rows * columns),
                                         reference::two_level_values(joined(wanted)))));
      } else if (of.matrix_rows > 0) {
        std::vector<uint8_t> codes, bytes;
        for (const TwoLevelMatrix& one : wanted) {
          const auto more = reference::packed_column_codes(one, of.matrix_rows, 0);
          const auto more_scales = reference::column_scales(one, of.matrix_rows, 0);
          codes.insert(codes.end(), more.begin(), more.end());
          bytes.insert(bytes.end(), more_scales.begin(), more_scales.end());
        }
        expect_bytes("codes by columns", by_columns, codes, of.matrix_rows / 2);
        expect_bytes("scales by columns", scales_by_columns, bytes, of.matrix_rows / 16);
      } else {
        TwoLevelMatrix all = joined(wanted);
        // Rows that fill up a stripe become zeros where all rows are real.
        const int64_t filled = has_groups ? rows : pitch;
        all.codes.resize(static_cast<size_t>(filled * columns));
        all.scales.resize(static_cast<size_t>(filled * columns));
        all.rows = filled;
        EXPECT_TRUE(
            matches(compare_bytes({"codes by columns", pitch / 2}, by_columns.download<uint8_t>(),
                                  reference::packed_column_codes(all, pitch, kUntouched))));
        EXPECT_TRUE(matches(compare_bytes({"scales by columns", pitch / 16},
                                          scales_by_columns.download<uint8_t>(),
                                          reference::column_scales(all, pitch, kUntouched))));
      }
    }
    if (!spec.casts_rows) {
      EXPECT_TRUE(untouched_from(by_rows.download<uint8_t>(), 0));
    }
    if (!spec.casts_columns) {
      EXPECT_TRUE(untouched_from(by_columns.download<uint8_t>(), 0));
    }
  }
};

TEST_F(TwoLevelCastKernel, EqualsTheReferenceForGroupsOfAnySize) {
  const TransposeGroups groups = groups_of_rows(kCastCounts, 16);
  for (const int64_t columns : {16, 48, 128, 144, 272})
    for (const CastResult result : kCastResults) {
      SCOPED_TRACE(columns);
      Case of{.permuted = random_bf16_rows(groups.offs.back() + 48, columns, 20, 1),
              .groups = groups};
      // What lies in pad rows has no say.
      for (size_t e = 0; e < groups.counts.size(); ++e)
        for (int64_t i = (groups.offs[e] + groups.counts[e]) * columns;
             i < groups.offs[e + 1] * columns; ++i)
          of.permuted[static_cast<size_t>(i)] = kBf16Infinity;
      expect_equal(of, columns, {.result = result, .casts_rows = true});
      // Each width is another kernel: one orientation has one below 128 columns and one above.
      if (columns != 48 && columns != 272) continue;
      expect_equal(of, columns, {.result = result});
      expect_equal(of, columns, {.result = result, .casts_rows = true, .casts_columns = false});
    }
}

// The scale above those of blocks goes from the smallest to the largest float.
TEST_F(TwoLevelCastKernel, FollowsTheRuleAtItsEdges) {
  const float largest = std::numeric_limits<float>::max();
  for (const float scale :
       {1.0f, 2688.0f / 6.0f, 0x1p-100f, 0x1p-126f, 0x1.8p64f, 0x1p120f, largest})
    for (const CastResult result : kCastResults)
      for (const bool has_tiles : {false, true}) {
        SCOPED_TRACE(scale);
        expect_equal({.permuted = rows_at_edges_of_two_levels(64, 1152), .expert_scales = {scale}},
                     1152, {.result = result, .has_tiles = has_tiles, .casts_rows = true});
      }
}

// The largest magnitude of all elements is at a limit of the rule, or one unit beside it.
TEST_F(TwoLevelCastKernel, TakesEveryLargestMagnitude) {
  for (const uint16_t edge : {0x0000, 0x0001, 0x0002, 0x0080, 0x0081, 0x007f, 0x40bf, 0x40c0,
                              0x40c1, 0x4527, 0x4528, 0x4529, 0x7f7e, 0x7f7f, 0x7f80}) {
    std::vector<uint16_t> values(16 * 64);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<uint16_t>((edge - std::min<size_t>(edge, i * 7 % 0x400)) |
                                        (i % 3 == 0 ? 0x8000U : 0U));
    values[33] = kBf16Nan;
    SCOPED_TRACE(edge);
    for (const CastResult result : kCastResults)
      expect_equal({.permuted = values}, 64, {.result = result, .casts_rows = true});
  }
}

TEST_F(TwoLevelCastKernel, CastsMatricesInTilesThatBothOrientationsShare) {
  for (const CastResult result : kCastResults)
    for (const int64_t rows : {16, 48, 128}) {
      const Case of{.permuted = random_bf16_rows(3 * rows, 144, 12, 3), .matrix_rows = rows};
      expect_equal(of, 144, {.result = result, .has_tiles = true, .casts_rows = true});
      expect_equal(
          of, 144,
          {.result = result, .has_tiles = true, .casts_rows = true, .casts_columns = false});
    }
}

// 48 stripes on 20 warps and on 4.
TEST_F(TwoLevelCastKernel, CastsMatricesWithAnyNumberOfCtas) {
  for (const int64_t ctas : {5, 1})
    for (const CastResult result : kCastResults)
      for (const bool casts_columns : {true, false}) {
        most_ctas_ = ctas;
        expect_equal({.permuted = random_bf16_rows(3 * 128, 144, 12, 3), .matrix_rows = 128}, 144,
                     {.result = result,
                      .has_tiles = true,
                      .casts_rows = true,
                      .casts_columns = casts_columns});
      }
}

TEST_F(TwoLevelCastKernel, CastsRowsOfTokensBelowOneScale) {
  for (const int64_t rows : {1, 15, 16, 17, 127, 128, 129})
    expect_equal({.permuted = random_bf16_rows(rows, 160, 12, 4)}, 160,
                 {.casts_rows = true, .casts_columns = false});
}

TEST_F(TwoLevelCastKernel, GathersTheRowsOfTokens) {
  const TransposeGroups groups = groups_of_rows(kCastCounts, 64);
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

TEST_F(TwoLevelCastKernel, TakesMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 40;
  const TransposeGroups groups = groups_of_rows(counts, 16);
  expect_equal({.permuted = random_bf16_rows(groups.offs.back(), 32, 4, 8), .groups = groups}, 32,
               {});
}

TEST_F(TwoLevelCastKernel, DoesNotDependOnThreadsOrTheirOrder) {
  const TransposeGroups groups = groups_of_rows({129, 7}, 16);
  const Case of{.permuted = random_bf16_rows(groups.offs.back(), 416, 6, 10), .groups = groups};
  for (const uint64_t seed : {1, 2})
    for (const int32_t threads : {32, 256}) {
      open(seed);
      expect_equal(of, 416, {.casts_rows = true, .threads = threads});
    }
}

}  // namespace
}  // namespace moejit::testing
