// SPDX-License-Identifier: Apache-2.0
// Random splits of random problems, and the same launch many times.

#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/gemm_runner.h"

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::RandomStream;

class RandomShapes : public GemmTest {
 protected:
  // Few problems, since each is a kernel to compile.
  const std::vector<GroupedGemmSpec> problems_ = {
      problem(7, 2, 144, 272),
      problem(3, 1, 448, 400),
      problem(40, 2, 96, 144),
      problem(5, 1, 328, 896),
      problem(9, 2, 256, 1040),
      swapped_problem(7, 2, 144, 400),
      swapped_problem(40, 1, 448, 272, 1, 32),
      swapped_problem(9, 2, 200, 1040, 2, 128),
  };

  // Groups that are empty, small, around the sizes of tiles, or large.
  static reference::Route random_splits(const RandomStream& random, int32_t experts) {
    constexpr int32_t kAlignments[] = {1, 8, 16, 100, 128, 256};
    const int64_t most = experts > 16 ? 100 : 400;
    std::vector<int32_t> counts(static_cast<size_t>(experts));
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t any = random.below(3 * i + 1, most);
      const int64_t near = 64 * random.below(3 * i + 1, 3) + random.below(3 * i + 2, 3);
      constexpr int64_t kKinds = 4;
      const int64_t kind = random.below(3 * i + 3, kKinds);
      const int64_t count = kind == 0 ? 0 : kind == 1 ? any % 17 : kind == 2 ? any : near;
      counts[i] = static_cast<int32_t>(count);
    }
    if (random.below(0, 8) == 0) counts.assign(counts.size(), 0);
    counts.back() += 1;
    return splits(counts, kAlignments[random.below(5000, std::size(kAlignments))]);
  }
};

TEST_F(RandomShapes, EqualTheReference) {
  const int32_t shapes = by_target(16, 200);
  for (int32_t shape = 0; shape < shapes && !HasFailure(); ++shape) {
    SCOPED_TRACE(shape);
    const RandomStream random(static_cast<uint64_t>(shape), 7);
    const GroupedGemmSpec& spec = problems_[static_cast<size_t>(shape) % problems_.size()];
    const auto route = random_splits(random, spec.local_experts);
    expect_exact(spec, route, static_cast<uint64_t>(shape));
  }
}

TEST_F(RandomShapes, GiveTheSameBitsInEveryRun) {
  for (const GroupedGemmSpec& spec : {problem(7, 2, 144, 1040), swapped_problem(7, 2, 144, 1040)}) {
    SCOPED_TRACE(to_string(spec));
    const auto route = splits({0, 1, 128, 64, 129, 33, 300}, 1);
    const QuantizedRows rows = random_rows(spec, route.rows());
    const QuantizedWeights weights = random_weights(spec);
    const auto first = multiply(spec, route, rows, weights);
    for (uint64_t run = 1; run < by_target(4U, 100U); ++run) {
      open(run);
      ASSERT_EQ(first, multiply(spec, route, rows, weights, 1 + static_cast<int64_t>(run) % 7))
          << "run " << run;
    }
  }
}

}  // namespace
}  // namespace moejit::testing
