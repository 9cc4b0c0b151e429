// SPDX-License-Identifier: Apache-2.0
// The contraction-grouped GEMM whose scales do not change along the tokens: one for each expert, or
// for each row of an expert's operands: the reference's bits, in both formats of gradients.

#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/end_scaled_gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/wgrad_runner.h"

#include <algorithm>
#include <limits>

namespace moejit::testing {
namespace {

using compiler::GemmAccumulation;
using compiler::GradientOutput;
using compiler::GradientScales;
using reference::EndScaledColumns;
using reference::Fp8Format;
using reference::RandomStream;
using reference::Route;

class EndScaledWgrad : public WgradTest {
 protected:
  static Spec spec_of(GradientScales scales, GemmAccumulation accumulation, bool is_a_e5m2,
                      GradientOutput output, int32_t experts, int32_t rows, int32_t n) {
    return compiler::choose_tiles(Spec{.scales = scales,
                                       .output = output,
                                       .accumulation = accumulation,
                                       .is_a_e5m2 = is_a_e5m2,
                                       .local_experts = experts,
                                       .rows = rows,
                                       .n = n},
                                  4096);
  }

  // Random codes in a group's columns, NaN codes behind its last step, and odd scales; an expert
  // without columns has a scale of NaN.
  static EndScaledColumns randoms(const Spec& spec, int64_t rows, Fp8Format format,
                                  const Route& route, uint64_t seed) {
    const RandomStream random(seed, 0), random_scales(seed, 1);
    EndScaledColumns operand{.rows = rows,
                             .columns = std::max<int64_t>(route.rows(), 128),
                             .format = format,
                             .values = {},
                             .scale = {}};
    operand.values.resize(static_cast<size_t>(rows * operand.columns),
                          std::numeric_limits<float>::quiet_NaN());
    for (size_t e = 0; e < route.counts.size(); ++e) {
      const int64_t first = route.offs[e];
      for (int64_t row = 0; row < rows; ++row) {
        float* const values = &operand.values[static_cast<size_t>(row * operand.columns)];
        for (int64_t i = 0; i < (route.counts[e] + 127) / 128 * 128; ++i) {
          const auto number = static_cast<uint64_t>(row * operand.columns + first + i);
          values[first + i] = i < route.counts[e] ? random_value(random, number, format) : 0.0f;
        }
        const uint64_t of_tensor = e << 20;
        const uint64_t own = spec.scales == GradientScales::kTensor
                                 ? of_tensor
                                 : of_tensor + static_cast<uint64_t>(row);
        operand.scale.push_back(route.counts[e] == 0
                                    ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(0.01 + random_scales.uniform(own)));
      }
    }
    return operand;
  }

  // Returns the value of one of the codes with magnitudes from 2^-5 to below 2^5.
  static float random_value(const RandomStream& random, uint64_t number, Fp8Format format) {
    const bool is_e5m2 = format == Fp8Format::kE5m2;
    const int64_t first = is_e5m2 ? 40 : 16, count = is_e5m2 ? 40 : 80;
    const auto code = static_cast<uint8_t>(first + random.below(2 * number, count) +
                                           128 * random.below(2 * number + 1, 2));
    return reference::decode_fp8(code, format);
  }

  static EndScaled stored(const Spec& spec, const EndScaledColumns& operand) {
    EndScaled result;
    for (const float value : operand.values)
      result.q.push_back(reference::encode_fp8(value, operand.format));
    for (int64_t i = 0; i < std::ssize(operand.scale); ++i)
      if (spec.scales == GradientScales::kRowColumn || i % operand.rows == 0)
        result.scale_inv.push_back(operand.scale[static_cast<size_t>(i)]);
    return result;
  }

  void expect_exact(const Spec& spec, const Route& route) {
    SCOPED_TRACE(to_string(spec));
    const EndScaledColumns a =
        randoms(spec, spec.rows, spec.is_a_e5m2 ? Fp8Format::kE5m2 : Fp8Format::kE4m3, route, 1);
    const EndScaledColumns b = randoms(spec, spec.n, Fp8Format::kE4m3, route, 2);
    const std::vector<float> old = old_values(spec);
    expect_stored(
        spec,
        reference::end_scaled_weight_gradient(
            a, b, route,
            spec.scales == GradientScales::kRowColumn ? reference::ScaleOrder::kRowThenColumn
                                                      : reference::ScaleOrder::kProductOfScales,
            spec.accumulation == GemmAccumulation::kFast ? route.rows() : 128),
        old, multiply(spec, route, stored(spec, a), stored(spec, b), old));
  }
};

TEST_F(EndScaledWgrad, EqualsTheReferenceForEveryOutput) {
  const Route route = splits({0, 1, 130, 128, 0}, 128);
  for (const GradientScales scales : {GradientScales::kTensor, GradientScales::kRowColumn})
    for (const GradientOutput output : kGradientOutputs)
      expect_exact(spec_of(scales, GemmAccumulation::kFp32, false, output, 5, 144, 208), route);
}

TEST_F(EndScaledWgrad, TakesGradientsInE5m2) {
  const Route route = splits({127, 0, 129}, 256);
  for (const GradientScales scales : {GradientScales::kTensor, GradientScales::kRowColumn})
    for (const GemmAccumulation accumulation : {GemmAccumulation::kFp32, GemmAccumulation::kFast})
      for (const GradientOutput output : {GradientOutput::kF32Add, GradientOutput::kBf16Add})
        expect_exact(spec_of(scales, accumulation, true, output, 3, 144, 448), route);
}

TEST_F(EndScaledWgrad, AddsInOneChainOfManySteps) {
  const Route route = splits({9 * 128 + 16}, 128);
  expect_exact(spec_of(GradientScales::kTensor, GemmAccumulation::kFast, false,
                       GradientOutput::kF32, 1, 16, 32),
               route);
}

}  // namespace
}  // namespace moejit::testing
