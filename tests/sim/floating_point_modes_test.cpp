// SPDX-License-Identifier: Apache-2.0
//
// Kernels compute on threads of the host, whose floating-point modes must not matter.

#include "tests/sim/support/rank_words.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>

#if defined(__SSE2__)
#include <xmmintrin.h>

namespace moejit::runtime {
namespace {

// Bits of MXCSR. Without masks, an invalid operation, an overflow, ... raise a signal.
constexpr unsigned kMasks = 0x1f80, kInexactMask = 0x1000, kFlags = 0x3f;
constexpr std::pair<const char*, unsigned> kModes[] = {
    {"rounds down", kMasks | 0x2000},    {"rounds up", kMasks | 0x4000},
    {"truncates", kMasks | 0x6000},      {"flushes results", kMasks | 0x8000},
    {"flushes operands", kMasks | 0x40}, {"raises signals", kInexactMask},
};

// Has the thread compute in a mode until it is destroyed.
class ThreadInMode {
 public:
  explicit ThreadInMode(unsigned mode) : before_(_mm_getcsr()) { _mm_setcsr(mode); }
  ~ThreadInMode() { _mm_setcsr(before_); }
  static unsigned now() { return _mm_getcsr() & ~kFlags; }

 private:
  unsigned before_;
};

constexpr const char* kResults = R"(
template <typename Output>
MOEJIT_DEVICE void store_results(float a, float b, Output output) {
  store(output, bits_of(add(a, b)));
  store(output + 1, bits_of(multiply(a, b)));
  store(output + 2, bits_of(divide(a, b)));
  store(output + 3, bf16_pair(multiply(a, b), divide(b, a)));
}
)";

const std::string kOperands = std::string(kResults) + R"(
struct Params { const uint32_t* input; uint32_t* output; };
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int64_t at = 64 * int64_t{cta_index()} + thread_index();
  const auto input = global(params.input) + 2 * thread_index();
  store_results(float_from_bits(load(input)), float_from_bits(load(input + 1)), global(params.output) + 4 * at);
}
)";

// Subnormal numbers, such that make them, halves between neighbors, and what raises signals.
std::vector<uint32_t> operands() {
  constexpr float kValues[] = {FLT_MIN,
                               0x1p-130f,
                               0.1f,
                               3.0f,
                               FLT_MAX,
                               0.0f,
                               1.0f + FLT_EPSILON,
                               std::numeric_limits<float>::infinity()};
  std::vector<uint32_t> words;
  for (const float a : kValues)
    for (const float b : kValues) {
      words.push_back(std::bit_cast<uint32_t>(a));
      words.push_back(std::bit_cast<uint32_t>(-b));
    }
  return words;
}

// Expects the wanted results in every mode of the host's thread, which keeps its mode.
template <typename Results, typename Wanted>
void expect_in_all_modes(const Results& results, const Wanted& wanted) {
  for (const auto& [name, mode] : kModes) {
    Wanted got = wanted;
    unsigned after = 0;
    {
      const ThreadInMode changed(mode);
      got = results();
      after = ThreadInMode::now();
    }
    EXPECT_EQ(after, mode) << name;
    EXPECT_EQ(got, wanted) << name;
  }
}

TEST(FloatingPointModes, OfTheHostDoNotChangeWhatKernelsCompute) {
  constexpr int64_t kCtas = 8;
  const auto results = [] {
    std::vector<SimBuffer> buffers{buffer_of("input", operands(), false),
                                   buffer_of("output", std::vector<uint32_t>(4 * 64 * kCtas))};
    buffers[1].written = false;
    const auto result =
        run_test_kernel(kOperands, {.ctas = kCtas, .threads = 64, .workers = 3}, buffers);
    EXPECT_TRUE(result.has_value());
    return values_of<uint32_t>(buffers[1]);
  };
  const std::vector<uint32_t> wanted = results();
  ASSERT_GT(std::ranges::count_if(
                wanted, [](uint32_t word) { return (word & 0x7f800000u) == 0 && word << 1 != 0; }),
            0);
  expect_in_all_modes(results, wanted);
}

TEST(FloatingPointModes, OfTheHostDoNotChangeWhatRanksCompute) {
  const std::string body = std::string(kResults) + R"(
MOEJIT_KERNEL(1, 1, test_kernel, Params) {
  store_results(0.1f * (params.rank + 1), 0x1.8p-126f, global(params.own));
}
)";
  const auto results = [&] {
    auto result = run_on_two_ranks(body, 0, 1, 1);
    EXPECT_TRUE(result.has_value());
    return result->own;
  };
  const auto wanted = results();
  ASSERT_NE(wanted[0][1], 0u);
  expect_in_all_modes(results, wanted);
}

}  // namespace
}  // namespace moejit::runtime
#endif
