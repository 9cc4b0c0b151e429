// SPDX-License-Identifier: Apache-2.0
// The kernel that casts gathered rows to permuted rows and to an operand of wgrad with known scales
// of experts, against the CPU reference, bit for bit.
#include "compiler/launch.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/scales.h"
#include "templates/moejit_device/params/cast_transpose_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <algorithm>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::CastTransposeSpec;
using compiler::DType;

constexpr int64_t kCastTokens = 40;

struct Groups {
  std::vector<int32_t> counts, offs = {0}, output_offs = {0};

  Groups(std::vector<int32_t> rows, int32_t alignment) : counts(std::move(rows)) {
    for (const int32_t count : counts) {
      offs.push_back(offs.back() + (count + alignment - 1) / alignment * alignment);
      output_offs.push_back(output_offs.back() +
                            (std::max(count, offs.back() - *(&offs.back() - 1)) + 127) / 128 * 128);
    }
  }
};

class CastTransposeKernel : public Chains {
 protected:
  // Tokens in any order, some of which are told as zeros; of pad rows none is there.
  static std::vector<int32_t> tokens_of(const Groups& groups, int64_t rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows), std::numeric_limits<int32_t>::max());
    for (size_t e = 0; e < groups.counts.size(); ++e)
      for (int32_t i = 0; i < groups.counts[e]; ++i) {
        const auto token =
            static_cast<int32_t>((7 * i + 11 * static_cast<int32_t>(e)) % kCastTokens);
        tokens[static_cast<size_t>(groups.offs[e] + i)] = i % 5 == 3 ? ~token : token;
      }
    return tokens;
  }

  void expect_reference(const Groups& groups, CastTransposeSpec spec, int64_t dropped = 0) {
    spec.local_experts = static_cast<int32_t>(groups.counts.size());
    const int64_t width = spec.columns, rows = groups.offs.back() - dropped;
    const int64_t columns = groups.output_offs.back() + 128;
    const std::vector<uint16_t> x = values(width);
    const std::vector<int32_t> tokens = tokens_of(groups, groups.offs.back());
    std::vector<float> scales;
    for (size_t e = 0; e < groups.counts.size(); ++e)
      scales.push_back(30.0F * (1.0F + 0.37F * static_cast<float>(e)));

    const int64_t behind = 3;  // rows that belong to no group
    std::vector<uint8_t> wanted_rows(static_cast<size_t>((groups.offs.back() + behind) * width),
                                     kUntouched);
    std::vector<uint8_t> wanted_columns(static_cast<size_t>(width * columns), kUntouched);
    std::vector<float> wanted_amax(2 * scales.size(), 0.0F);
    wanted_amax[1] = 100.0F;
    const std::vector<float> old_amax = wanted_amax;
    for (size_t e = 0; e < groups.counts.size(); ++e) {
      const auto format =
          spec.format == DType::kF8E5M2 ? reference::Fp8Format::kE5m2 : reference::Fp8Format::kE4m3;
      const int64_t blocks = (groups.counts[e] + 127) / 128;
      for (int64_t i = 0; i < std::max<int64_t>(blocks * 128, groups.offs[e + 1] - groups.offs[e]);
           ++i) {
        const int64_t row = groups.offs[e] + i;
        std::vector<uint8_t> codes(static_cast<size_t>(width), 0);
        if (i < groups.counts[e] && row < rows) {
          const int32_t told = tokens[static_cast<size_t>(row)];
          const int64_t token = told < 0 ? ~told : told;
          std::vector<uint16_t> of_token(x.begin() + token * width,
                                         x.begin() + (token + 1) * width);
          if (spec.zeroes_rows && told < 0) std::ranges::fill(of_token, uint16_t{0});
          codes = reference::cast_bf16(of_token, scales[e], format);
          wanted_amax[2 * e + 1] =
              std::max(wanted_amax[2 * e + 1], reference::amax_of_bf16(of_token));
        }
        if (row < std::min<int64_t>(groups.offs[e + 1], rows))
          std::ranges::copy(codes, wanted_rows.begin() + row * width);
        if (i < blocks * 128)
          for (int64_t c = 0; c < width; ++c)
            wanted_columns[static_cast<size_t>(c * columns + groups.output_offs[e] + i)] =
                codes[static_cast<size_t>(c)];
      }
    }
    if (!spec.stores_rows) std::ranges::fill(wanted_rows, kUntouched);
    if (!is_recorded(spec.amax)) wanted_amax = old_amax;

    const DeviceBuffer input_x = input("x", x), row_tokens = input("row_tokens", tokens);
    const DeviceBuffer counts = input("counts", groups.counts), offs = input("offs", groups.offs);
    const DeviceBuffer output_offs = input("output_offs", groups.output_offs);
    const DeviceBuffer expert_scales = input("scale", scales);
    const DeviceBuffer q = output<uint8_t>("q", std::ssize(wanted_rows));
    const DeviceBuffer colwise = output<uint8_t>("colwise_q", width * columns);
    const DeviceBuffer amax = output<float>("amax", std::ssize(old_amax));
    amax.upload(0, old_amax);
    const device::CastTransposeParams params{
        .input = input_x.as<const void>(),
        .row_tokens = row_tokens.as<const int32_t>(),
        .counts = counts.as<const int32_t>(),
        .offs = offs.as<const int32_t>(),
        .output_offs = output_offs.as<const int32_t>(),
        .expert_scales = expert_scales.as<const float>(),
        .output = spec.stores_rows ? q.as<uint8_t>() : nullptr,
        .output_colwise = colwise.as<uint8_t>(),
        .amax = is_recorded(spec.amax) ? amax.as<float>() : nullptr,
        .rows = rows,
        .output_columns = columns};
    const int64_t tiles = columns / 128 * ((width + 127) / 128);
    run(spec, tiles, params,
        {&input_x, &row_tokens, &counts, &offs, &output_offs, &expert_scales, &q, &colwise, &amax});
    EXPECT_EQ(q.download<uint8_t>(), wanted_rows);
    EXPECT_TRUE(matches(compare_e4m3(
        {"colwise_q", columns}, reference::from_column_blocks(colwise.download<uint8_t>(), columns),
        wanted_columns)));
    EXPECT_EQ(amax.download<float>(), wanted_amax);
  }

 private:
  // One row holds an infinity, one a NaN, whose magnitude counts as nothing.
  static std::vector<uint16_t> values(int64_t width) {
    std::vector<uint16_t> x = reference::random_activations(kCastTokens, width, 5);
    x[static_cast<size_t>(2 * width + 1)] =
        reference::bf16_from_float(std::numeric_limits<float>::quiet_NaN());
    x[static_cast<size_t>(9 * width)] =
        reference::bf16_from_float(-std::numeric_limits<float>::infinity());
    return x;
  }
};

const std::vector<int32_t> kCastTransposeCounts{0, 3, 17, 0, 130, 1, 0, 128};
constexpr compiler::AmaxColumns kState{.stride = 2, .first = 1};

TEST_F(CastTransposeKernel, EqualsTheReferenceForRowsOfAnyLengthInBothFormats) {
  for (const int32_t columns : {16, 128, 176, 656})
    for (const DType format : {DType::kF8E5M2, DType::kF8E4M3}) {
      SCOPED_TRACE(columns);
      expect_reference({kCastTransposeCounts, 16},
                       {.format = format, .columns = columns, .amax = kState});
    }
}

TEST_F(CastTransposeKernel, ZeroesRowsThatWerePermutedAsZeros) {
  expect_reference({kCastTransposeCounts, 16},
                   {.columns = 272, .zeroes_rows = true, .amax = kState});
}

TEST_F(CastTransposeKernel, FillsGroupsOfAnyAlignmentWithZeros) {
  for (const int32_t alignment : {1, 64, 128, 256}) {
    SCOPED_TRACE(alignment);
    expect_reference({kCastTransposeCounts, alignment}, {.columns = 144, .amax = kState});
  }
}

TEST_F(CastTransposeKernel, LeavesOutWhatNobodyWants) {
  expect_reference({kCastTransposeCounts, 16},
                   {.columns = 272, .stores_rows = false, .amax = kState});
  expect_reference({kCastTransposeCounts, 16}, {.columns = 272});
}

// Groups may end behind the rows that there are: no such row is touched.
TEST_F(CastTransposeKernel, TouchesNoRowBehindTheBound) {
  expect_reference({kCastTransposeCounts, 16}, {.columns = 144, .amax = kState}, 37);
}

TEST_F(CastTransposeKernel, DoesNotDependOnTheOrderOfThreads) {
  for (const uint64_t seed : {1, 2}) {
    open(seed);
    expect_reference({kCastTransposeCounts, 16}, {.columns = 272, .amax = kState});
  }
}

TEST_F(CastTransposeKernel, TouchesNothingWhereAllGroupsAreEmpty) {
  expect_reference({{0, 0}, 16}, {.columns = 144, .amax = kState});
}

}  // namespace
}  // namespace moejit::testing
