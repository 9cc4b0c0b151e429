// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/support/sim_kernel.h"

#include <numeric>

namespace moejit::runtime {
namespace {

// Reverses 256 numbers per CTA through shared memory.
constexpr const char* kReverse = R"(
struct Params { const int32_t* input; int32_t* output; };
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const int64_t base = int64_t{256} * cta_index();
  const auto slots = shared<int32_t>(0);
  store(slots + t, load(global(params.input) + base + t));
  sync_cta();
  store(global(params.output) + base + t, load(slots + (255 - t)));
}
)";

TEST(Simulator, RunsAKernelWithABarrier) {
  std::vector<int32_t> input(256 * 9);
  std::iota(input.begin(), input.end(), 7);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<SimBuffer> buffers{buffer_of("input", input, false),
                                   buffer_of("output", std::vector<int32_t>(input.size()))};
    buffers[1].written = false;
    const auto result =
        run_test_kernel(kReverse, {.ctas = 9, .threads = 256, .seed = seed, .workers = 3}, buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    const auto output = values_of<int32_t>(buffers[1]);
    for (std::size_t i = 0; i < output.size(); ++i) {
      ASSERT_EQ(output[i], input[i / 256 * 256 + 255 - i % 256]);
    }
  }
}

}  // namespace
}  // namespace moejit::runtime
