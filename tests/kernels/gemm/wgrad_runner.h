// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/kernels/gemm/gemm_runner.h"

#include <cstdint>
#include <vector>

namespace moejit::testing {

// Lists the ways in which weight gradients are stored.
inline constexpr compiler::GradientOutput kGradientOutputs[] = {compiler::GradientOutput::kBf16,
                                                                compiler::GradientOutput::kF32,
                                                                compiler::GradientOutput::kF32Add};

// A fixture that makes weight gradients with the kernel that the planner makes of a problem.
class WgradTest : public GemmTest {
 protected:
  using Spec = compiler::ContractionGroupedGemmSpec;

  // Small matrices; `mean_columns` chooses among the planner's ways to add.
  static Spec problem(compiler::GradientScales scales, compiler::GradientOutput output,
                      int32_t experts, int32_t rows, int32_t n, int64_t mean_columns = 4096);

  // Returns the spec, also with clusters, and as GPUs without WGMMA have it, where these may be.
  static std::vector<Spec> ways(Spec spec);

  // Random A or B [rows, columns of the route] for the scales of `spec`. Columns that fill up a
  // group's last 128 are zeros, those behind them NaN with NaN scales.
  static reference::QuantizedRows randoms(const Spec& spec, int64_t rows,
                                          const reference::Route& route, uint64_t seed);

  // D [E, sections, result rows, n] after the launch, of whole clusters, as numbers; `old` is what
  // it held where the launch adds, else it held poison. Expects that nothing around the rows of any
  // group's matrix was touched.
  std::vector<double> multiply(const Spec& spec, const reference::Route& route,
                               const reference::QuantizedRows& a, const reference::QuantizedRows& b,
                               const std::vector<float>& old, int64_t ctas = 3);

  // Returns the result for bf16 operands [rows of the route, rows] and [rows of the route, n].
  std::vector<double> multiply(const Spec& spec, const reference::Route& route,
                               const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                               const std::vector<float>& old, int64_t ctas = 3);

  // Returns the result for FP8 operands [rows, columns of the route] whose scales complete sums
  // meet.
  struct EndScaled {
    std::vector<uint8_t> q;
    std::vector<float> scale_inv;
  };
  std::vector<double> multiply(const Spec& spec, const reference::Route& route, const EndScaled& a,
                               const EndScaled& b, const std::vector<float>& old, int64_t ctas = 3);

  // What D may hold before: integers below 200.
  static std::vector<float> old_values(const Spec& spec);

  // Expects the reference's bits on random numbers.
  void expect_exact(const Spec& spec, const reference::Route& route, uint64_t seed = 1);

  // Expects D as these sums leave it: added to `old` where the launch adds, and rounded once.
  static void expect_stored(const Spec& spec, std::vector<float> sums,
                            const std::vector<float>& old, const std::vector<double>& got);

 private:
  // As the kernel takes it.
  struct Operand {
    std::vector<uint8_t> bytes;
    std::vector<float> scale_inv;  // empty: none
  };
  std::vector<double> launch(const Spec& spec, const reference::Route& route, int64_t columns,
                             const Operand& a, const Operand& b, const std::vector<float>& old,
                             int64_t ctas);
  template <typename T>
  std::vector<double> launch_as(const Spec& spec, const reference::Route& route, int64_t columns,
                                const Operand& a, const Operand& b, const std::vector<float>& old,
                                int64_t ctas);
};

}  // namespace moejit::testing
