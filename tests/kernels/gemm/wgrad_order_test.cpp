// SPDX-License-Identifier: Apache-2.0
// Where every element has a factor of its own, the order of roundings is that of cuBLASLt: the sum
// of 128 products meets the scale of its row first, and fma() adds it with that of its column.

#include "compiler/planner/candidates.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/wgrad_runner.h"

#include <cmath>

namespace moejit::testing {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using reference::QuantizedRows;
using reference::Route;

class WgradOrder : public WgradTest {
 protected:
  static constexpr int32_t kRows = 272, kColumns = 208, kExperts = 4;

  // Random numbers with scales from 1 to 2 whose products are rounded.
  static QuantizedRows matrix(const Spec& spec, int64_t rows, const Route& route, uint64_t seed) {
    QuantizedRows made = randoms(spec, rows, route, seed);
    const reference::RandomStream random(seed, 1);
    for (size_t i = 0; i < made.scale_inv.size(); ++i)
      if (!std::isnan(made.scale_inv[i]))
        made.scale_inv[i] = static_cast<float>(1.0 + random.uniform(i));
    return made;
  }
};

// Groups of no, one, an odd and an even number of steps; rows and columns that fill no tile.
TEST_F(WgradOrder, IsTheSameInEveryCandidate) {
  const Route route = splits({0, 100, 300, 500}, 128);
  const Spec problem{.scales = GradientScales::kRow,
                     .output = GradientOutput::kF32,
                     .local_experts = kExperts,
                     .rows = kRows,
                     .n = kColumns};
  const QuantizedRows a = matrix(problem, kRows, route, 1);
  const QuantizedRows b = matrix(problem, kColumns, route, 2);
  const std::vector<float> wanted =
      reference::weight_gradient(a, b, route, reference::ScaleOrder::kRowThenColumn);
  for (const auto& candidate : compiler::contraction_grouped_gemm_candidates(problem, 4096)) {
    SCOPED_TRACE(to_string(candidate.spec));
    const std::vector<double> got = multiply(candidate.spec, route, a, b, {});
    ASSERT_TRUE(
        matches(compare_f32({"d", kColumns}, std::vector<float>(got.begin(), got.end()), wanted)));
  }
}

}  // namespace
}  // namespace moejit::testing
