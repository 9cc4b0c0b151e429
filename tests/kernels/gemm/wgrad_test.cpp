// SPDX-License-Identifier: Apache-2.0
// The contraction-grouped GEMM against the CPU reference: exact where every sum is, within the
// derived bound on random numbers, whatever D held.

#include "compiler/planner/contraction_grouped_gemm.h"
#include "templates/moejit_device/params/contraction_grouped_gemm_params.h"
#include "tests/kernels/gemm/gemm_runner.h"
#include "tests/support/reference/number_formats.h"
#include "tests/support/reference/random_inputs.h"
#include "tests/support/reference/weight_gradient.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moejit::testing {
namespace {

using compiler::ContractionGroupedGemmSpec;
using compiler::GradientOutput;
using reference::block_count;
using reference::QuantizedRows;
using reference::RandomStream;
using reference::Route;

constexpr GradientOutput kOutputs[] = {GradientOutput::kBf16, GradientOutput::kF32,
                                       GradientOutput::kF32Add};
// Tokens of a group to expect: the planner's three ways to add.
constexpr int64_t kMeanColumns[] = {4096, 1024, 256};

class Wgrad : public GemmTest {
 protected:
  static ContractionGroupedGemmSpec problem(GradientOutput output, int32_t experts, int32_t rows,
                                            int32_t n, int64_t mean_columns = 4096) {
    return compiler::choose_tiles(
        {.output = output, .local_experts = experts, .rows = rows, .n = n}, mean_columns);
  }

  // Scales per 128x128 tile: rows of a tile repeat the first one's. Columns that no group has are
  // zeros where they fill up a group's last 128, as the contract wants.
  static QuantizedRows share_scales_in_tiles(QuantizedRows matrix, const Route& route) {
    const int64_t blocks = block_count(matrix.cols);
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const int64_t first = row / 128 * 128;
      std::copy_n(&matrix.scale_inv[first * blocks], blocks, &matrix.scale_inv[row * blocks]);
      for (size_t e = 0; e < route.counts.size(); ++e) {
        std::fill(&matrix.q[row * matrix.cols + route.offs[e] + route.counts[e]],
                  &matrix.q[row * matrix.cols] + route.offs[e + 1], uint8_t{0});
      }
    }
    return matrix;
  }

  static QuantizedRows integers(int64_t rows, const Route& route, uint64_t seed) {
    return share_scales_in_tiles(integer_rows({.k = columns_of(route)}, rows, seed), route);
  }
  static QuantizedRows randoms(int64_t rows, const Route& route, uint64_t seed) {
    return share_scales_in_tiles(random_rows({.k = columns_of(route)}, rows, seed), route);
  }

  // [ceil(rows / 128), columns / 128].
  static std::vector<float> tile_scales(const QuantizedRows& matrix) {
    const int64_t blocks = block_count(matrix.cols);
    std::vector<float> scales;
    for (int64_t row = 0; row < matrix.rows; row += 128) {
      const float* from = &matrix.scale_inv[row * blocks];
      scales.insert(scales.end(), from, from + blocks);
    }
    return scales;
  }

  // Elements of D before the launch: small integers, or poison where they must not matter.
  template <typename T>
  static std::vector<T> old_values(const ContractionGroupedGemmSpec& spec) {
    std::vector<T> old(size_of(spec));
    std::memset(old.data(), 0xcd, old.size() * sizeof(T));
    if constexpr (std::is_same_v<T, float>) {
      if (spec.output != GradientOutput::kF32Add) return old;
      const RandomStream random(77, 0);
      for (size_t i = 0; i < old.size(); ++i) old[i] = static_cast<float>(random.below(i, 200));
    }
    return old;
  }

  template <typename T>
  std::vector<T> multiply(const ContractionGroupedGemmSpec& spec, const Route& route,
                          const QuantizedRows& a, const QuantizedRows& b, int64_t ctas = 3) {
    constexpr int64_t kBeyond = 1000;
    const DeviceBuffer a_buffer = input("a", a.q);
    const DeviceBuffer b_buffer = input("b", b.q);
    const DeviceBuffer a_scale_inv = input("a_scale_inv", tile_scales(a));
    const DeviceBuffer b_scale_inv = input("b_scale_inv", tile_scales(b));
    const DeviceBuffer counts = input("counts", route.counts);
    const DeviceBuffer offs = input("offs", route.offs);
    const DeviceBuffer d = output<T>("d", static_cast<int64_t>(size_of(spec)) + kBeyond);
    if (spec.output == GradientOutput::kF32Add) d.upload(0, old_values<T>(spec));
    const auto maps = compiler::contraction_grouped_gemm_tensor_maps(spec, a.cols, {});
    const device::ContractionGroupedGemmParams params{.a_map = tensor_map(maps[0].box, a_buffer),
                                                      .b_map = tensor_map(maps[1].box, b_buffer),
                                                      .d_map = tensor_map(maps[2].box, d),
                                                      .a_scale_inv = a_scale_inv.as<const float>(),
                                                      .b_scale_inv = b_scale_inv.as<const float>(),
                                                      .counts = counts.as<const int32_t>(),
                                                      .offs = offs.as<const int32_t>(),
                                                      .columns = a.cols};
    run(spec, ctas, params, {&a_buffer, &b_buffer, &a_scale_inv, &b_scale_inv, &counts, &offs, &d});
    const auto values = d.download<T>();
    EXPECT_TRUE(untouched_from(values, static_cast<int64_t>(size_of(spec))));
    return head(values, static_cast<int64_t>(size_of(spec)));
  }

  void expect_exact(const ContractionGroupedGemmSpec& spec, const Route& route) {
    const QuantizedRows a = integers(spec.rows, route, 1);
    const QuantizedRows b = integers(spec.n, route, 2);
    std::vector<float> wanted = reference::weight_gradient(a, b, route);
    if (spec.output == GradientOutput::kBf16) {
      std::vector<uint16_t> rounded;
      for (const float value : wanted) rounded.push_back(reference::bf16_from_float(value));
      EXPECT_TRUE(
          matches(compare_bf16({"d", spec.n}, multiply<uint16_t>(spec, route, a, b), rounded)));
      return;
    }
    if (spec.output == GradientOutput::kF32Add) {
      const auto old = old_values<float>(spec);
      for (size_t i = 0; i < old.size(); ++i) wanted[i] += old[i];
    }
    EXPECT_TRUE(matches(compare_f32({"d", spec.n}, multiply<float>(spec, route, a, b), wanted)));
  }

 private:
  static size_t size_of(const ContractionGroupedGemmSpec& spec) {
    return static_cast<size_t>(int64_t{spec.local_experts} * spec.rows * spec.n);
  }
  // At least one step: a tensor map has no empty dimension.
  static int32_t columns_of(const Route& route) {
    return std::max(static_cast<int32_t>(route.rows()), 128);
  }
};

TEST_F(Wgrad, EqualsTheReferenceOnSmallIntegersForEveryOutput) {
  const Route route = splits({0, 1, 130, 128, 0}, 128);
  for (const GradientOutput output : kOutputs) {
    SCOPED_TRACE(to_string(output));
    expect_exact(problem(output, 5, 144, 208), route);
  }
}

TEST_F(Wgrad, AddsInEachOfThePlannersWays) {
  const Route route = splits({300, 0, 700}, 128);
  for (const int64_t mean : kMeanColumns) {
    SCOPED_TRACE(mean);
    expect_exact(problem(GradientOutput::kF32Add, 3, 144, 448, mean), route);
  }
}

TEST_F(Wgrad, EqualsTheReferenceWithNarrowTilesAlone) {
  for (const GradientOutput output : kOutputs) {
    SCOPED_TRACE(to_string(output));
    expect_exact(problem(output, 2, 72, 120), splits({200, 65}, 128));
  }
}

// The walk over the groups takes 32 at a time.
TEST_F(Wgrad, EqualsTheReferenceForManyGroups) {
  std::vector<int32_t> counts(70, 0);
  for (size_t i = 0; i < counts.size(); i += 3) counts[i] = static_cast<int32_t>(i);
  for (const GradientOutput output : {GradientOutput::kF32, GradientOutput::kF32Add}) {
    SCOPED_TRACE(to_string(output));
    expect_exact(problem(output, 70, 16, 32, 256), splits(counts, 128));
  }
}

TEST_F(Wgrad, WritesZerosWhereNothingIsRoutedOrLeavesWhatWasThere) {
  const Route route = splits({0, 0, 0}, 128);
  for (const GradientOutput output : kOutputs) {
    SCOPED_TRACE(to_string(output));
    expect_exact(problem(output, 3, 136, 72), route);
  }
}

TEST_F(Wgrad, IsWithinTheDerivedBoundOnRandomNumbers) {
  const Route route = splits({by_target(500, 4000), 0, 40, 128}, 128);
  const ContractionGroupedGemmSpec spec = problem(GradientOutput::kF32, 4, 136, 328);
  const QuantizedRows a = randoms(spec.rows, route, 5);
  const QuantizedRows b = randoms(spec.n, route, 6);
  const auto wanted = reference::weight_gradient_exact(a, b, route);
  const auto got = multiply<float>(spec, route, a, b);
  const auto& bound = kOnGpu ? wanted.bound : wanted.fp32_bound;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - wanted.value[i]), bound[i]) << "element " << i;
  }
}

TEST_F(Wgrad, GivesTheSameBitsInEveryRun) {
  const Route route = splits({200, 0, 640, 17}, 128);
  for (const int64_t mean : kMeanColumns) {
    const ContractionGroupedGemmSpec spec = problem(GradientOutput::kF32Add, 4, 264, 200, mean);
    const QuantizedRows a = randoms(spec.rows, route, 5);
    const QuantizedRows b = randoms(spec.n, route, 6);
    const auto first = multiply<float>(spec, route, a, b);
    for (uint64_t run = 1; run < by_target(3, 100); ++run) {
      open(run);
      ASSERT_EQ(first, multiply<float>(spec, route, a, b, 1 + static_cast<int64_t>(run) % 7))
          << "run " << run;
    }
  }
}

}  // namespace
}  // namespace moejit::testing
