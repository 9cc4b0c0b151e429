// SPDX-License-Identifier: Apache-2.0
// How far results are from exact ones on data that the tensor cores' short sums like best and
// least: products of either sign, and products that are all positive.

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/gemm_runner.h"
#include "tests/kernels/gemm/tile_errors.h"

#include <algorithm>
#include <cmath>

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::RandomStream;

class Accuracy : public GemmTest {
 protected:
  static constexpr int32_t kRows = 128;

  static std::vector<uint8_t> normal_codes(size_t count, uint64_t seed, bool is_positive) {
    const RandomStream random(seed, 0);
    std::vector<uint8_t> codes(count);
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(64.0 * random.normal(i));
      codes[i] = reference::encode_e4m3(is_positive ? std::fabs(value) : value);
    }
    return codes;
  }

  // The largest relative error of a tile of either kind, in the 2-norm, with all scales 1.
  double worst_tile(int32_t sharing, bool is_positive) {
    const int32_t k = by_target(1040, 7168);
    return std::max(worst_tile_of(problem(1, 1, 192, k, sharing), is_positive),
                    worst_tile_of(swapped_problem(1, 1, 192, k, sharing), is_positive));
  }

  double worst_tile_of(const GroupedGemmSpec& spec, bool is_positive) {
    QuantizedRows rows = integer_rows(spec, kRows);
    QuantizedWeights weights = integer_weights(spec);
    rows.q = normal_codes(rows.q.size(), 1, is_positive);
    weights.q = normal_codes(weights.q.size(), 2, is_positive);
    std::ranges::fill(rows.scale_inv, 1.0f);
    std::ranges::fill(weights.scale_inv, 1.0f);
    const auto route = splits({kRows}, 1);
    const auto wanted = reference::grouped_gemm_in_fp64(rows, weights, route);
    const auto got = multiply(spec, route, rows, weights);
    EXPECT_TRUE(matches(
        compare_bf16({"d", weights.rows}, got,
                     reference::grouped_gemm(rows, weights, route, spec.blocks_per_promotion))));
    return tile_errors(got, wanted, weights.rows).worst_tile;
  }
};

// At most what rounding to bf16 can cost, 2^-9, and the tensor cores' share in docs/recipes.md: 0.1
// and 0.2e-3 where signs vary, 0.6 and 2.1e-3 where they do not.
TEST_F(Accuracy, IsThatOfBf16WhereSignsVary) {
  EXPECT_LT(worst_tile(1, false), 2.2e-3);
  EXPECT_LT(worst_tile(2, false), 2.2e-3);
}

TEST_F(Accuracy, IsNearThatOfBf16WhereAllProductsArePositive) {
  EXPECT_LT(worst_tile(1, true), 2.6e-3);
  EXPECT_LT(worst_tile(2, true), 4.1e-3);
}

}  // namespace
}  // namespace moejit::testing
