// SPDX-License-Identifier: Apache-2.0
// The contraction-grouped GEMM of bf16 operands that lie as tokens do, a row each.

#include "runtime/reference/gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/wgrad_runner.h"

namespace moejit::testing {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using reference::RandomStream;
using reference::Route;

constexpr uint16_t kNanWithPayload = 0x7fc1;

class Bf16Wgrad : public WgradTest {
 protected:
  static Spec problem(GradientOutput output, int32_t experts, int32_t rows, int32_t n,
                      int64_t mean_columns = 4096) {
    return WgradTest::problem(GradientScales::kNone, output, experts, rows, n, mean_columns);
  }

  // [rows of the route, cols]: pad rows up to a group's last step of 64 are zeros, those behind
  // them NaN. At least one row: a tensor map has no empty dimension.
  template <typename Value>
  static std::vector<uint16_t> tokens(const Route& route, int64_t cols, const Value& value) {
    const auto rows = static_cast<size_t>(std::max<int64_t>(route.rows(), 1));
    std::vector<uint16_t> all(rows * static_cast<size_t>(cols), kNanWithPayload);
    for (size_t e = 0; e < route.counts.size(); ++e) {
      const int64_t first = route.offs[e], count = route.counts[e];
      for (int64_t row = first; row < first + (count + 63) / 64 * 64; ++row)
        for (int64_t i = row * cols; i < (row + 1) * cols; ++i)
          all[static_cast<size_t>(i)] =
              row < first + count
                  ? reference::bf16_from_float(static_cast<float>(value(static_cast<uint64_t>(i))))
                  : uint16_t{0};
    }
    return all;
  }
  static std::vector<uint16_t> normals(const Route& route, int64_t cols, uint64_t seed) {
    const RandomStream random(seed, 0);
    return tokens(route, cols, [&](uint64_t i) { return random.normal(i); });
  }

  // Expects the reference's bits on random numbers.
  void expect_exact(const Spec& spec, const Route& route) {
    SCOPED_TRACE(to_string(spec));
    const std::vector<uint16_t> a = normals(route, spec.rows, 3), b = normals(route, spec.n, 4);
    const std::vector<float> old = old_values(spec);
    expect_stored(spec, reference::bf16_weight_gradient(a, spec.rows, b, spec.n, route), old,
                  multiply(spec, route, a, b, old));
  }
};

TEST_F(Bf16Wgrad, EqualsTheReferenceForEveryOutput) {
  for (const GradientOutput output : kGradientOutputs)
    for (const Spec& spec : ways(problem(output, 5, 144, 208)))
      expect_exact(spec, splits({0, 1, 130, 128, 0}, 64));
}

TEST_F(Bf16Wgrad, EqualsTheReferenceForGroupsOfAnySize) {
  const Route route = splits({by_target(500, 4000), 0, 40, 127, 128}, 128);
  for (const GradientOutput output : kGradientOutputs)
    for (const Spec& spec : ways(problem(output, 5, 144, 208))) expect_exact(spec, route);
}

// Sizes around a step of the contraction, with rows between the groups that nobody owns.
TEST_F(Bf16Wgrad, ReadsNoRowsBeyondAGroupsSteps) {
  const Route route = splits({0, 1, 63, 64, 65}, 192);
  for (const GradientOutput output : kGradientOutputs)
    for (const Spec& spec : ways(problem(output, 5, 328, 336))) expect_exact(spec, route);
}

TEST_F(Bf16Wgrad, AddsInEachOfThePlannersWays) {
  for (const int64_t mean : {4096, 1024, 256})
    for (const Spec& spec : ways(problem(GradientOutput::kF32Add, 3, 144, 448, mean)))
      expect_exact(spec, splits({300, 0, 700}, 64));
  for (const Spec& spec : ways(problem(GradientOutput::kBf16Add, 3, 144, 448)))
    expect_exact(spec, splits({300, 0, 700}, 64));
}

TEST_F(Bf16Wgrad, WritesZerosWhereNothingIsRoutedOrLeavesWhatWasThere) {
  for (const GradientOutput output : kGradientOutputs)
    for (const Spec& spec : ways(problem(output, 5, 144, 208)))
      expect_exact(spec, splits({0, 0, 0, 0, 0}, 64));
}

TEST_F(Bf16Wgrad, GivesTheSameBitsInEveryRun) {
  const Route route = splits({200, 0, 640}, 64);
  const Spec usual = problem(GradientOutput::kF32Add, 3, 144, 448);
  const auto a = normals(route, usual.rows, 5), b = normals(route, usual.n, 6);
  const std::vector<float> old = old_values(usual);
  const auto first = multiply(usual, route, a, b, old);
  for (const Spec& spec : ways(usual))
    for (uint64_t run = 1; run < by_target(3U, 100U); ++run) {
      open(run);
      ASSERT_EQ(first, multiply(spec, route, a, b, old, 1 + static_cast<int64_t>(run) % 7))
          << to_string(spec) << ", run " << run;
    }
}

}  // namespace
}  // namespace moejit::testing
