// SPDX-License-Identifier: Apache-2.0
// Weight gradients of random splits of random problems.

#include "runtime/reference/random_inputs.h"
#include "tests/kernels/gemm/wgrad_runner.h"

#include <iterator>

namespace moejit::testing {
namespace {

using compiler::GradientOutput;
using compiler::GradientScales;
using reference::RandomStream;

class WgradShapes : public WgradTest {
 protected:
  // Each is a kernel to compile, so that the simulator has those of wgrad_test.cpp.
  static std::vector<Spec> problems() {
    struct Size {
      int32_t experts, rows, n;
    };
    constexpr Size kSizes[] = {
        {5, 144, 208}, {3, 328, 448}, {40, 96, 144}, {2, 1040, 272}, {1, 16, 16}};
    std::vector<Spec> all;
    for (const Size& size : kSizes) {
      if (!kOnGpu && size.experts != 5) continue;
      const auto add = [&](const Spec& spec) {
        for (const Spec& one : ways(spec)) all.push_back(one);
      };
      for (const GradientScales scales : {GradientScales::kTile, GradientScales::kRow}) {
        for (const GradientOutput output :
             {GradientOutput::kBf16, GradientOutput::kF32, GradientOutput::kF32Add}) {
          add(problem(scales, output, size.experts, size.rows, size.n));
        }
        if (!kOnGpu) continue;
        for (const int64_t mean : {1024, 256})
          add(problem(scales, GradientOutput::kF32Add, size.experts, size.rows, size.n, mean));
      }
    }
    return all;
  }

  // Groups that are empty, small, around the sizes of steps, or large.
  static reference::Route random_splits(const RandomStream& random, int32_t experts) {
    const int64_t most = experts > 16 ? 200 : by_target(500, 1500);
    std::vector<int32_t> counts(static_cast<size_t>(experts));
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t any = random.below(3 * i + 1, most);
      const int64_t near = 128 * (1 + random.below(3 * i + 1, 3)) + random.below(3 * i + 2, 3) - 1;
      constexpr int64_t kKinds = 4;
      const int64_t kind = random.below(3 * i + 3, kKinds);
      const int64_t count = kind == 0 ? 0 : kind == 1 ? any % 17 : kind == 2 ? any : near;
      counts[i] = static_cast<int32_t>(count);
    }
    constexpr int32_t kAlignments[] = {128, 128, 256, 384};
    return splits(counts, kAlignments[random.below(5000, std::ssize(kAlignments))]);
  }
};

TEST_F(WgradShapes, EqualTheReference) {
  const int32_t shapes = by_target(18, 320);
  const std::vector<Spec> all = problems();
  for (int32_t shape = 0; shape < shapes && !HasFailure(); ++shape) {
    const Spec& spec = all[static_cast<size_t>(shape) % all.size()];
    SCOPED_TRACE(std::to_string(shape) + ": " + to_string(spec));
    const auto seed = static_cast<uint64_t>(shape);
    const auto route = random_splits(RandomStream(seed, 8), spec.local_experts);
    expect_exact(spec, route, seed);
  }
}

}  // namespace
}  // namespace moejit::testing
