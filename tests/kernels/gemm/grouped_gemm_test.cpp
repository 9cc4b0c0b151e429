// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM against the CPU reference: exact where every sum is, within the derived bound on
// random numbers, and the same bits for a row whatever surrounds it.

#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/reference/gemm.h"
#include "tests/support/reference/number_formats.h"
#include "tests/support/reference/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::block_count;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::RandomStream;

constexpr uint8_t kNaN = 0x7f;

// Splits of the rows into groups, as the route kernel makes them.
reference::Route splits(std::vector<int32_t> counts, int32_t alignment) {
  reference::Route route{.counts = std::move(counts), .offs = {0}, .row_map = {}};
  for (const int32_t count : route.counts) {
    route.offs.push_back(route.offs.back() + (count + alignment - 1) / alignment * alignment);
  }
  return route;
}

// Pad rows are given NaN data and scales: nothing of them may reach a result.
void poison_pad_rows(const reference::Route& route, QuantizedRows& a) {
  const auto real = reference::real_rows(route);
  for (int64_t row = 0; row < a.rows; ++row) {
    if (real[row] != 0) continue;
    std::fill_n(a.q.begin() + row * a.cols, a.cols, kNaN);
    std::fill_n(a.scale_inv.begin() + row * block_count(a.cols), block_count(a.cols),
                std::numeric_limits<float>::quiet_NaN());
  }
}

uint8_t small_integer(const RandomStream& random, int64_t i) {
  return reference::encode_e4m3(static_cast<float>(random.below(i, 5) - 2));
}
float power_of_two(const RandomStream& random, int64_t i) {
  return std::ldexp(1.0f, static_cast<int>(random.below(i, 5) - 2));
}

// Integers from -2 to 2 and scales from 1/4 to 4: sums of any order are exact.
QuantizedRows integer_rows(int64_t rows, int64_t k) {
  QuantizedRows a{rows, k, std::vector<uint8_t>(rows * k),
                  std::vector<float>(rows * block_count(k))};
  const RandomStream random(1, 0);
  const RandomStream scales(1, 1);
  for (size_t i = 0; i < a.q.size(); ++i) a.q[i] = small_integer(random, i);
  for (size_t i = 0; i < a.scale_inv.size(); ++i) a.scale_inv[i] = power_of_two(scales, i);
  return a;
}

QuantizedWeights integer_weights(const GroupedGemmSpec& spec) {
  QuantizedWeights b{.experts = spec.local_experts,
                     .rows = spec.sections * spec.section_n,
                     .cols = spec.k,
                     .sections = spec.sections};
  b.q.resize(b.experts * b.rows * b.cols);
  b.scale_inv.resize(b.experts * b.scale_rows() * block_count(b.cols));
  const RandomStream random(2, 0);
  const RandomStream scales(2, 1);
  for (size_t i = 0; i < b.q.size(); ++i) b.q[i] = small_integer(random, i);
  for (size_t i = 0; i < b.scale_inv.size(); ++i) b.scale_inv[i] = power_of_two(scales, i);
  return b;
}

QuantizedRows random_rows(int64_t rows, int64_t k) {
  return reference::quantize_1x128(reference::random_activations(rows, k, 3), rows, k);
}

QuantizedWeights random_weights(const GroupedGemmSpec& spec) {
  const int64_t n = spec.sections * spec.section_n;
  return reference::quantize_128x128(reference::random_weights(spec.local_experts, n, spec.k, 4),
                                     spec.local_experts, n, spec.k, spec.sections);
}

class GroupedGemm : public Chains {
 protected:
  // D [offs[E], N]. The buffer is longer: what lies beyond must stay as it was.
  std::vector<uint16_t> multiply(const GroupedGemmSpec& spec, const reference::Route& route,
                                 const QuantizedRows& rows, const QuantizedWeights& weights,
                                 int64_t ctas = 3) {
    const int64_t elements = route.rows() * weights.rows;
    const int64_t beyond = 130 * weights.rows;
    const DeviceBuffer a = input("a", rows.q);
    const DeviceBuffer a_scale_inv = input("a_scale_inv", rows.scale_inv);
    const DeviceBuffer b = input("b", weights.q);
    const DeviceBuffer b_scale_inv = input("b_scale_inv", weights.scale_inv);
    const DeviceBuffer counts = input("counts", route.counts);
    const DeviceBuffer offs = input("offs", route.offs);
    const DeviceBuffer d = output<uint16_t>("d", elements + beyond);
    const device::GroupedGemmParams params{.a = a.as<const device::E4m3>(),
                                           .a_scale_inv = a_scale_inv.as<const float>(),
                                           .b = b.as<const device::E4m3>(),
                                           .b_scale_inv = b_scale_inv.as<const float>(),
                                           .d = d.as<device::Bf16>(),
                                           .counts = counts.as<const int32_t>(),
                                           .offs = offs.as<const int32_t>()};
    run(spec, ctas, params, {&a, &a_scale_inv, &b, &b_scale_inv, &counts, &offs, &d});
    const auto values = d.download<uint16_t>();
    EXPECT_TRUE(untouched_from(values, elements));
    return head(values, elements);
  }

  void expect_exact(const GroupedGemmSpec& spec, const reference::Route& route) {
    expect_exact(spec, route, integer_weights(spec));
  }
  void expect_exact(const GroupedGemmSpec& spec, const reference::Route& route,
                    const QuantizedWeights& weights) {
    QuantizedRows rows = integer_rows(route.rows(), spec.k);
    const auto wanted = reference::grouped_gemm(rows, weights, route);
    poison_pad_rows(route, rows);
    const auto got = multiply(spec, route, rows, weights);
    EXPECT_TRUE(matches(compare_bf16({"d", weights.rows}, got, wanted)));
  }
};

// Two sections whose last tile has 16 columns, and a last block of 16 of the contraction.
constexpr GroupedGemmSpec kRagged{.local_experts = 7, .sections = 2, .section_n = 144, .k = 272};
const std::vector<int32_t> kRaggedCounts = {0, 1, 17, 0, 129, 128, 0};

TEST_F(GroupedGemm, EqualsTheReferenceOnSmallIntegersForAnyAlignment) {
  for (const int32_t alignment : {1, 16, 100, 128}) {
    SCOPED_TRACE(alignment);
    expect_exact(kRagged, splits(kRaggedCounts, alignment));
  }
}

TEST_F(GroupedGemm, WritesZerosToPadRowsThatFillTilesOfTheirOwn) {
  expect_exact(kRagged, splits({1, 0, 0, 127, 0, 0, 0}, 300));
}

TEST_F(GroupedGemm, LetsANanOfAWeightReachItsColumnButNoPadRow) {
  QuantizedWeights weights = integer_weights(kRagged);
  const int64_t expert = 4;
  const int64_t column = 150;
  weights.q[(expert * weights.rows + column) * kRagged.k + 5] = kNaN;
  expect_exact(kRagged, splits(kRaggedCounts, 16), weights);
}

TEST_F(GroupedGemm, TouchesNothingWhereAllGroupsAreEmpty) {
  QuantizedRows rows = integer_rows(1, kRagged.k);  // never read
  const auto route = splits(std::vector<int32_t>(7, 0), 128);
  EXPECT_TRUE(multiply(kRagged, route, rows, integer_weights(kRagged)).empty());
}

// The walk over the groups takes 32 at a time.
TEST_F(GroupedGemm, FindsFewRowsAmongManyGroups) {
  const GroupedGemmSpec spec{.local_experts = 70, .sections = 1, .section_n = 32, .k = 16};
  std::vector<int32_t> counts(70, 0);
  for (const int32_t expert : {0, 31, 32, 63, 69}) counts[expert] = expert + 1;
  expect_exact(spec, splits(counts, 16));
  std::fill(counts.begin(), counts.end(), 0);
  counts[69] = 3;
  expect_exact(spec, splits(counts, 1));
}

// More than the 16 row tiles of a band.
TEST_F(GroupedGemm, CoversGroupsOfManyRowTiles) {
  const GroupedGemmSpec spec{.local_experts = 2, .sections = 1, .section_n = 144, .k = 16};
  expect_exact(spec, splits({2200, 5}, 16));
}

TEST_F(GroupedGemm, StaysWithinTheBoundOnRandomNumbers) {
  const auto route = splits(kRaggedCounts, 16);
  QuantizedRows rows = random_rows(route.rows(), kRagged.k);
  const QuantizedWeights weights = random_weights(kRagged);
  const auto wanted = reference::grouped_gemm_exact(rows, weights, route);
  poison_pad_rows(route, rows);
  const auto got = multiply(kRagged, route, rows, weights);
  EXPECT_TRUE(matches(compare_bf16_within({"d", weights.rows}, got, wanted.value, wanted.bound)));
}

TEST_F(GroupedGemm, DoesNotDependOnTheNumberOfCtas) {
  const auto route = splits(kRaggedCounts, 16);
  const QuantizedRows rows = random_rows(route.rows(), kRagged.k);
  const QuantizedWeights weights = random_weights(kRagged);
  EXPECT_EQ(multiply(kRagged, route, rows, weights, 1), multiply(kRagged, route, rows, weights, 9));
}

// Expert 4 has one row in one launch, and in the other 200, of which some are that same row.
TEST_F(GroupedGemm, GivesARowTheSameBitsWhereverItLies) {
  constexpr int64_t kRow = 150;
  const QuantizedWeights weights = random_weights(kRagged);
  QuantizedRows many = random_rows(200, kRagged.k);
  const auto copy_row = [&](const QuantizedRows& from, int64_t source, QuantizedRows& to,
                            int64_t target) {
    const int64_t k = from.cols;
    std::copy_n(&from.q[source * k], k, &to.q[target * k]);
    std::copy_n(&from.scale_inv[source * block_count(k)], block_count(k),
                &to.scale_inv[target * block_count(k)]);
  };
  const std::vector<int64_t> copies = {0, 7, 8, 70, 127, 128, 199};
  for (const int64_t row : copies) copy_row(many, kRow, many, row);
  QuantizedRows one = random_rows(1, kRagged.k);
  copy_row(many, kRow, one, 0);

  const auto alone = multiply(kRagged, splits({0, 0, 0, 0, 1, 0, 0}, 1), one, weights);
  const auto among = multiply(kRagged, splits({0, 0, 0, 0, 200, 0, 0}, 1), many, weights);
  for (const int64_t row : copies) {
    const std::vector<uint16_t> bits(&among[row * weights.rows], &among[(row + 1) * weights.rows]);
    EXPECT_EQ(bits, alone) << "row " << row;
  }
}

}  // namespace
}  // namespace moejit::testing
