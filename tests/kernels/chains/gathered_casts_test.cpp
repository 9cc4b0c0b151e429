// SPDX-License-Identifier: Apache-2.0
// The kernel that casts gathered rows to permuted rows and to an operand of wgrad, each with scales
// of its own, against the CPU reference, bit for bit.
#include "compiler/launch.h"
#include "runtime/reference/column_blocks.h"
#include "runtime/reference/column_cast.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/cast_transpose_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::CastTransposeSpec;
using reference::TransposeGroups;

constexpr uint8_t kUntouched = 0xcd;  // what outputs start with
constexpr int64_t kTokens = 40;
constexpr int64_t kBehind = 3;  // rows that belong to no group

TransposeGroups groups_of(const std::vector<int32_t>& counts, int32_t alignment) {
  TransposeGroups groups{.counts = counts, .offs = {0}, .output_offs = {0}};
  for (const int32_t count : counts) {
    const int32_t rows = (count + alignment - 1) / alignment * alignment;
    groups.offs.push_back(groups.offs.back() + rows);
    groups.output_offs.push_back(groups.output_offs.back() + (rows + 127) / 128 * 128);
  }
  return groups;
}

// Tokens in any order, some of which are told as zeros; of pad rows none is there.
std::vector<int32_t> tokens_of(const TransposeGroups& groups) {
  std::vector<int32_t> tokens(static_cast<size_t>(groups.offs.back()),
                              std::numeric_limits<int32_t>::max());
  for (size_t e = 0; e < groups.counts.size(); ++e)
    for (int32_t i = 0; i < groups.counts[e]; ++i) {
      const auto token = static_cast<int32_t>((7 * i + 11 * static_cast<int32_t>(e)) % kTokens);
      tokens[static_cast<size_t>(groups.offs[e] + i)] = i % 5 == 3 ? ~token : token;
    }
  return tokens;
}

// Tokens of all sizes, one with an infinity, one with a NaN, one of zeros.
std::vector<uint16_t> tokens_values(int64_t width) {
  std::vector<uint16_t> x = reference::random_activations(kTokens, width, 5);
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t i = 0; i < width; ++i) {
      uint16_t& value = x[static_cast<size_t>(token * width + i)];
      const float size = std::ldexp(1.0F, static_cast<int>((token + i / 24) % 17) - 8);
      value = reference::bf16_from_float(reference::float_from_bf16(value) * size);
    }
  x[static_cast<size_t>(2 * width + 1)] =
      reference::bf16_from_float(std::numeric_limits<float>::quiet_NaN());
  x[static_cast<size_t>(9 * width)] =
      reference::bf16_from_float(-std::numeric_limits<float>::infinity());
  std::fill_n(x.begin() + 12 * width, width, uint16_t{0});
  return x;
}

class GatheredCastsKernel : public Chains {
 protected:
  // `dropped` rows at the end of the last group are not there.
  void expect_reference(const TransposeGroups& groups, CastTransposeSpec spec,
                        int64_t dropped = 0) {
    spec.finds_scales = true;
    spec.threads = 128;
    spec.local_experts = static_cast<int32_t>(groups.counts.size());
    const int64_t width = spec.columns, blocks = reference::block_count(width);
    const int64_t rows = groups.offs.back() - dropped;
    const int64_t columns = groups.output_offs.back() + 128;
    const std::vector<uint16_t> x = tokens_values(width);
    const std::vector<int32_t> tokens = tokens_of(groups);

    std::vector<uint16_t> permuted(static_cast<size_t>(rows * width), 0);
    std::vector<bool> is_pad(static_cast<size_t>(rows), true);
    TransposeGroups existing = groups;
    for (size_t e = 0; e < groups.counts.size(); ++e) {
      const int64_t left = std::max<int64_t>(rows - groups.offs[e], 0);
      existing.counts[e] = static_cast<int32_t>(std::min<int64_t>(groups.counts[e], left));
      for (int64_t row = groups.offs[e]; row < groups.offs[e] + existing.counts[e]; ++row) {
        const int32_t told = tokens[static_cast<size_t>(row)];
        is_pad[static_cast<size_t>(row)] = false;
        if (told < 0 && spec.zeroes_rows) continue;
        std::copy_n(x.begin() + (told < 0 ? ~told : told) * width, width,
                    permuted.begin() + row * width);
      }
    }
    reference::QuantizedRows by_rows =
        reference::quantize_1x128(permuted, rows, width, spec.epsilon);
    for (int64_t row = 0; row < rows; ++row)
      if (is_pad[static_cast<size_t>(row)])
        std::fill_n(by_rows.scale_inv.begin() + row * blocks, blocks, 0.0F);
    const reference::ColumnCast by_columns =
        reference::quantize_columns(permuted, width, existing, columns, spec.epsilon, kUntouched);

    const DeviceBuffer input_x = input("x", x), row_tokens = input("row_tokens", tokens);
    const DeviceBuffer counts = input("counts", groups.counts), offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer q = output<uint8_t>("q", (rows + kBehind) * width);
    const DeviceBuffer scales = output<float>("q_scale_inv", (rows + kBehind) * blocks);
    const DeviceBuffer colwise = output<uint8_t>("colwise_q", width * columns);
    const DeviceBuffer colwise_scales = output<float>("colwise_scale_inv", columns / 128 * width);
    const device::CastTransposeParams params{.input = input_x.as<const void>(),
                                             .row_tokens = row_tokens.as<const int32_t>(),
                                             .counts = counts.as<const int32_t>(),
                                             .offs = offs.as<const int32_t>(),
                                             .output_offs = output_offs.as<const int32_t>(),
                                             .output = q.as<uint8_t>(),
                                             .output_colwise = colwise.as<uint8_t>(),
                                             .output_scale_inv = scales.as<float>(),
                                             .output_colwise_scale_inv = colwise_scales.as<float>(),
                                             .rows = rows,
                                             .output_columns = columns};
    run(spec, columns / 128 * blocks, params,
        {&input_x, &row_tokens, &counts, &offs, &output_offs, &q, &scales, &colwise,
         &colwise_scales});
    expect_rows(q.download<uint8_t>(), by_rows.q);
    expect_rows(scales.download<float>(), by_rows.scale_inv);
    EXPECT_TRUE(matches(compare_e4m3(
        {"colwise_q", columns}, reference::from_column_blocks(colwise.download<uint8_t>(), columns),
        by_columns.bytes)));
    expect_column_scales(existing, width, colwise_scales.download<float>(), by_columns.scale_inv);
  }

 private:
  // Nothing behind the rows is touched.
  template <typename T>
  static void expect_rows(std::vector<T> got, const std::vector<T>& wanted) {
    EXPECT_TRUE(untouched_from(got, std::ssize(wanted)));
    got.resize(wanted.size());
    EXPECT_EQ(got, wanted);
  }
  // Scales of blocks without tokens are not touched.
  static void expect_column_scales(const TransposeGroups& groups, int64_t width,
                                   const std::vector<float>& got,
                                   const std::vector<float>& wanted) {
    std::vector<bool> has_tokens(got.size() / static_cast<size_t>(width), false);
    for (size_t e = 0; e < groups.counts.size(); ++e)
      for (int32_t i = 0; i < groups.counts[e]; i += 128)
        has_tokens[static_cast<size_t>((groups.output_offs[e] + i) / 128)] = true;
    for (size_t i = 0; i < got.size(); ++i) {
      if (has_tokens[i / static_cast<size_t>(width)])
        ASSERT_EQ(got[i], wanted[i]) << i;
      else
        ASSERT_TRUE(untouched_from(std::vector<float>{got[i]}, 0)) << i;
    }
  }
};

const std::vector<int32_t> kCounts{0, 3, 17, 0, 130, 1, 0, 128};

TEST_F(GatheredCastsKernel, EqualsTheReferenceForRowsOfAnyLength) {
  for (const int32_t columns : {16, 128, 176, 656}) {
    SCOPED_TRACE(columns);
    expect_reference(groups_of(kCounts, 16), {.columns = columns});
  }
}

TEST_F(GatheredCastsKernel, HasTheSmallestAmaxOfARecipe) {
  expect_reference(groups_of(kCounts, 16), {.columns = 272, .epsilon = 0.01F});
}

TEST_F(GatheredCastsKernel, ZeroesRowsThatWerePermutedAsZeros) {
  expect_reference(groups_of(kCounts, 16), {.columns = 272, .zeroes_rows = true});
}

TEST_F(GatheredCastsKernel, FillsGroupsOfAnyAlignmentWithZeros) {
  for (const int32_t alignment : {1, 64, 128, 256}) {
    SCOPED_TRACE(alignment);
    expect_reference(groups_of(kCounts, alignment), {.columns = 144});
  }
}

// Groups may end behind the rows that there are: no such row is touched.
TEST_F(GatheredCastsKernel, TouchesNoRowBehindTheBound) {
  expect_reference(groups_of(kCounts, 16), {.columns = 144}, 37);
}

TEST_F(GatheredCastsKernel, TakesMoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> counts(70, 1);
  for (size_t e = 0; e < counts.size(); e += 3) counts[e] = e % 2 == 0 ? 0 : 140;
  expect_reference(groups_of(counts, 16), {.columns = 16});
}

TEST_F(GatheredCastsKernel, DoesNotDependOnTheOrderOfThreads) {
  for (const uint64_t seed : {1, 2}) {
    open(seed);
    expect_reference(groups_of(kCounts, 16), {.columns = 272});
  }
}

TEST_F(GatheredCastsKernel, TouchesNothingWhereAllGroupsAreEmpty) {
  expect_reference(groups_of({0, 0}, 16), {.columns = 144});
}

}  // namespace
}  // namespace moejit::testing
