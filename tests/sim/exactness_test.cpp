// SPDX-License-Identifier: Apache-2.0
//
// What conversions, collectives and matrix instructions compute, against straightforward code.

#include "tests/sim/support/sim_kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>

namespace moejit::runtime {
namespace {

// Launches one CTA and gives the words of `output`.
std::vector<uint32_t> run(const std::string& kernel, const std::vector<uint32_t>& input,
                          std::size_t outputs, SimLaunch launch = {}) {
  std::vector<SimBuffer> buffers{buffer_of("input", input, false),
                                 buffer_of("output", std::vector<uint32_t>(outputs))};
  buffers[1].written = false;
  const auto result = run_test_kernel(kernel, launch, buffers);
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return values_of<uint32_t>(buffers[1]);
}

std::vector<uint32_t> random_words(std::size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> words(count);
  std::ranges::generate(words, random);
  return words;
}

constexpr const char* kParams = R"(
struct Params { const uint32_t* input; uint32_t* output; };
)";

// Both bf16 and e4m3 of every input, in the low and the high half.
const std::string kConvert = std::string(kParams) + R"(
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  const int64_t at = int64_t{256} * cta_index() + thread_index();
  const float value = float_from_bits(load(global(params.input) + at));
  const auto output = global(params.output) + 2 * at;
  store(output, bf16_pair(value, -value));
  store(output + 1, static_cast<uint32_t>(e4m3_pair(value, -value)));
}
)";

// The nearest of the finite magnitudes that `decode` gives for codes 0 to `last`, by trying all;
// ties go to the even code.
uint32_t nearest_e4m3(double magnitude) {
  uint32_t best = 0;
  double distance = INFINITY;
  for (uint32_t code = 0; code <= 0x7e; ++code) {
    const int exponent = static_cast<int>(code >> 3);
    const double value =
        exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), exponent - 10);
    const double d = std::fabs(magnitude - value);
    if (d < distance || (d == distance && code % 2 == 0)) {
      best = code;
      distance = d;
    }
  }
  return best;
}

uint32_t wanted_e4m3(float value) {
  if (std::isnan(value)) return 0x7f;
  const uint32_t sign = std::signbit(value) ? 0x80 : 0;
  return sign | nearest_e4m3(std::min(std::fabs(static_cast<double>(value)), 448.0));
}

uint32_t wanted_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  if (std::isinf(value)) return std::bit_cast<uint32_t>(value) >> 16;
  const uint32_t down = std::bit_cast<uint32_t>(value) >> 16;
  const auto as_double = [](uint32_t bits) {
    // One step beyond the largest finite one counts as 2^128.
    if ((bits & 0x7fff) == 0x7f80) return std::ldexp(bits >> 15 != 0 ? -1.0 : 1.0, 128);
    return static_cast<double>(std::bit_cast<float>(bits << 16));
  };
  const double below = std::fabs(value - as_double(down));
  const double above = std::fabs(as_double(down + 1) - value);
  if (below == above) return down + (down & 1);
  return below < above ? down : down + 1;
}

std::vector<uint32_t> interesting_floats() {
  std::vector<uint32_t> inputs;
  for (uint32_t code = 0; code < 0x7f; ++code) {  // e4m3 values, halfway points and neighbours
    const int exponent = static_cast<int>(code >> 3);
    const double value =
        exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), exponent - 10);
    const double half_step = std::ldexp(0.5, std::max(exponent, 1) - 10);
    for (const double x : {value, value + half_step}) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
      inputs.insert(inputs.end(), {bits, bits + 1, bits == 0 ? 0 : bits - 1});
    }
  }
  inputs.insert(inputs.end(), {0x7f800000u, 0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7f7fffffu,
                               0x7f7f8000u, 0x00000001u, 0x007fffffu, 0x80000000u});
  for (const uint32_t word : random_words(4096 - inputs.size() % 256, 1)) inputs.push_back(word);
  inputs.resize(inputs.size() / 256 * 256);
  return inputs;
}

TEST(SimulatedConversions, RoundToTheNearestOfAllCodes) {
  const std::vector<uint32_t> inputs = interesting_floats();
  const auto output = run(kConvert, inputs, 2 * inputs.size(),
                          {.ctas = static_cast<int64_t>(inputs.size() / 256), .threads = 256});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto value = std::bit_cast<float>(inputs[i]);
    ASSERT_EQ(output[2 * i], wanted_bf16(value) | wanted_bf16(-value) << 16) << value;
    ASSERT_EQ(output[2 * i + 1], wanted_e4m3(value) | wanted_e4m3(-value) << 8) << value;
  }
}

// The e5m2 bytes of every input and of its negative, and the reciprocal.
const std::string kConvertE5m2 = std::string(kParams) + R"(
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  const int64_t at = int64_t{256} * cta_index() + thread_index();
  const float value = float_from_bits(load(global(params.input) + at));
  const auto output = global(params.output) + 2 * at;
  store(output, static_cast<uint32_t>(e5m2_pair(value, -value)));
  store(output + 1, bits_of(reciprocal(value)));
}
)";

// By trying all codes, as above.
uint32_t wanted_e5m2(float value) {
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::min(std::fabs(static_cast<double>(value)), 57344.0);
  const auto distance = [&](uint32_t code) {
    const int exponent = static_cast<int>(code >> 2);
    return std::fabs(magnitude - (exponent == 0 ? std::ldexp(code & 3, -16)
                                                : std::ldexp(4 + (code & 3), exponent - 17)));
  };
  uint32_t best = 0;
  for (uint32_t code = 1; code <= 0x7b; ++code)
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0))
      best = code;
  return (std::signbit(value) ? 0x80 : 0) | best;
}

// The halfway points of e4m3, at other exponents, have all of e5m2.
TEST(SimulatedConversions, RoundToTheNearestE5m2AndReciprocal) {
  std::vector<uint32_t> inputs = interesting_floats();
  for (std::size_t i = 0; i < 127 * 6; ++i) {
    const auto value = std::bit_cast<float>(inputs[i]);
    inputs[i] = std::bit_cast<uint32_t>(std::ldexp(value, static_cast<int>(i % 23) - 11));
  }
  const auto output = run(kConvertE5m2, inputs, 2 * inputs.size(),
                          {.ctas = static_cast<int64_t>(inputs.size() / 256), .threads = 256});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto value = std::bit_cast<float>(inputs[i]);
    ASSERT_EQ(output[2 * i], wanted_e5m2(value) | wanted_e5m2(-value) << 8) << value;
    if (std::isnan(value)) continue;
    ASSERT_EQ(std::bit_cast<float>(output[2 * i + 1]), 1.0f / value) << value;
  }
}

const std::string kArithmetic = std::string(kParams) + R"(
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto input = global(params.input) + 3 * t;
  const float a = float_from_bits(load(input));
  const float b = float_from_bits(load(input + 1));
  const float c = float_from_bits(load(input + 2));
  const float results[] = {multiply(a, b), add(a, b), fused_multiply_add(a, b, c), divide(a, b),
                           max_number(a, b), absolute(a), exp2_approximate(a * 0x1p-120f),
                           reciprocal_approximate(a)};
  for (int32_t i = 0; i < 8; ++i) store(global(params.output) + (8 * t + i), bits_of(results[i]));
}
)";

TEST(SimulatedArithmetic, RoundsOnceAndGivesTheNanOfTheGpu) {
  std::vector<uint32_t> inputs = random_words(3 * 256, 2);
  const std::array<uint32_t, 8> special{0x7fc00000u, 0xff800000u, 0x7f800000u, 0x80000000u,
                                        0x00000000u, 0x3f800000u, 0xffc12345u, 0x00000001u};
  for (std::size_t i = 0; i < 64; ++i) {
    inputs[3 * i] = special[i % 8];
    inputs[3 * i + 1] = special[i / 8];
  }
  const auto output = run(kArithmetic, inputs, 8 * 256, {.threads = 256});
  const auto bits = [](float value) {
    return std::isnan(value) ? 0x7fffffffu : std::bit_cast<uint32_t>(value);
  };
  for (std::size_t i = 0; i < 256; ++i) {
    const auto a = std::bit_cast<float>(inputs[3 * i]);
    const auto b = std::bit_cast<float>(inputs[3 * i + 1]);
    const auto c = std::bit_cast<float>(inputs[3 * i + 2]);
    const uint32_t* got = &output[8 * i];
    EXPECT_EQ(got[0], bits(a * b)) << a << " " << b;
    EXPECT_EQ(got[1], bits(a + b)) << a << " " << b;
    EXPECT_EQ(got[2], bits(std::fma(a, b, c))) << a << " " << b << " " << c;
    EXPECT_EQ(got[3], bits(a / b)) << a << " " << b;
    const float larger = a == 0 && b == 0 ? (std::signbit(a) ? b : a) : std::fmax(a, b);
    EXPECT_EQ(got[4], bits(larger)) << a << " " << b;
    EXPECT_EQ(got[5], inputs[3 * i] & 0x7fffffffu);
    EXPECT_EQ(got[6], bits(static_cast<float>(std::exp2(static_cast<double>(a * 0x1p-120f)))));
    EXPECT_EQ(got[7], bits(1.0f / a));
  }
}

const std::string kBytes = std::string(kParams) + R"(
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const uint32_t a = load(global(params.input) + 2 * t);
  const uint32_t b = load(global(params.input) + (2 * t + 1));
  const auto output = global(params.output) + 3 * t;
  store(output, permute_bytes<0x7340>(a, b));
  store(output + 1, permute_bytes<0x1652>(a, b));
  store(output + 2, larger_bf16_magnitudes(a, b));
}
)";

TEST(SimulatedBytes, ComeFromWhereTheDigitsSay) {
  const std::vector<uint32_t> inputs = random_words(2 * 256, 4);
  const auto output = run(kBytes, inputs, 3 * 256, {.threads = 256});
  for (std::size_t i = 0; i < 256; ++i) {
    const auto byte = [&](uint32_t n) { return inputs[2 * i + n / 4] >> (8 * (n % 4)) & 0xff; };
    EXPECT_EQ(output[3 * i], byte(0) | byte(4) << 8 | byte(3) << 16 | byte(7) << 24);
    EXPECT_EQ(output[3 * i + 1], byte(2) | byte(5) << 8 | byte(6) << 16 | byte(1) << 24);
  }
}

TEST(SimulatedBytes, HaveTheLargerMagnitudeOfEachHalfOrTheOneThatIsANumber) {
  std::vector<uint32_t> inputs = random_words(2 * 256, 5);
  const std::array<uint32_t, 8> special{0x7fc0u, 0xff80u, 0x7f80u, 0x8000u,
                                        0x0000u, 0x3f80u, 0xffc1u, 0x0001u};
  for (std::size_t i = 0; i < 64; ++i) {
    inputs[2 * i] = special[i % 8] | special[i / 8] << 16;
    inputs[2 * i + 1] = special[i / 8] | special[i % 8] << 16;
  }
  const auto output = run(kBytes, inputs, 3 * 256, {.threads = 256});
  const auto magnitude = [](uint32_t word, uint32_t half) {
    return std::fabs(std::bit_cast<float>(half == 0 ? word << 16 : word & 0xffff0000u));
  };
  for (std::size_t i = 0; i < 256; ++i) {
    for (const uint32_t half : {0u, 1u}) {
      const float a = magnitude(inputs[2 * i], half);
      const float b = magnitude(inputs[2 * i + 1], half);
      const float got = magnitude(output[3 * i + 2], half);
      if (std::isnan(a) && std::isnan(b)) {
        EXPECT_TRUE(std::isnan(got)) << got;
      } else {
        EXPECT_EQ(got, std::fmax(a, b)) << a << " " << b;
      }
    }
  }
}

const std::string kCollectives = std::string(kParams) + R"(
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const uint32_t value = load(global(params.input) + t);
  const int32_t key = static_cast<int32_t>(value % 5);
  const uint64_t wide = uint64_t{value} << 20;
  const uint32_t results[] = {shuffle(value, 7 * t), shuffle_xor(value, 19), shuffle_up(value, 3),
                              ballot(value % 3 == 0), match_any(key),
                              static_cast<uint32_t>(shuffle_xor(wide, 1) >> 20),
                              static_cast<uint32_t>(population_count(value)),
                              static_cast<uint32_t>(shuffle(static_cast<float>(t), 40))};
  for (int32_t i = 0; i < 8; ++i) store(global(params.output) + (8 * t + i), results[i]);
}
)";

TEST(SimulatedCollectives, ExchangeAsTheContractSays) {
  const auto input = random_words(64, 3);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto output = run(kCollectives, input, 8 * 64, {.threads = 64, .seed = seed});
    for (std::size_t t = 0; t < 64; ++t) {
      const std::size_t warp = t / 32 * 32;
      const std::size_t lane = t % 32;
      uint32_t votes = 0;
      uint32_t matches = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        votes |= static_cast<uint32_t>(input[warp + i] % 3 == 0) << i;
        matches |= static_cast<uint32_t>(input[warp + i] % 5 == input[t] % 5) << i;
      }
      const uint32_t* got = &output[8 * t];
      EXPECT_EQ(got[0], input[warp + 7 * t % 32]);
      EXPECT_EQ(got[1], input[warp + (lane ^ 19)]);
      EXPECT_EQ(got[2], lane >= 3 ? input[t - 3] : input[t]);
      EXPECT_EQ(got[3], votes);
      EXPECT_EQ(got[4], matches);
      EXPECT_EQ(got[5], input[t ^ 1]);
      EXPECT_EQ(got[6], static_cast<uint32_t>(std::popcount(input[t])));
      EXPECT_EQ(got[7], warp + 8);
    }
  }
}

// A [16, 32] and B [8, 32] through shared memory and load_matrices (rows of 32 bytes; matrices:
// rows 0-7 and 8-15 of the left half of A, then of the right half; B left, B right), D [16, 8].
const std::string kMma = std::string(kParams) + R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto rows = shared<Bytes16>(0);
  for (int32_t i = t; i < 48; i += 32) {
    copy_async_16(rows + i, as<const Bytes16>(global(params.input)) + i, true);
  }
  commit_async_copies();
  wait_async_copies<0>();
  sync_warp();
  const MatrixFragments a = load_matrices(rows + (2 * (t % 16) + t / 16));
  const MatrixFragments b = load_matrices(rows + (32 + 2 * (t % 8) + t / 8 % 2));
  const uint32_t b_words[2] = {b.word[0], b.word[1]};
  float d[4];
  const auto start = global(params.input) + 192;
  const auto output = global(params.output);
  const int32_t row = t / 4;
  const int32_t column = 2 * (t % 4);
  for (int32_t i = 0; i < 4; ++i) {
    d[i] = float_from_bits(load(start + (8 * (row + i / 2 * 8) + column + i % 2)));
  }
  mma_m16n8k32_e4m3(d, a.word, b_words);
  for (int32_t i = 0; i < 4; ++i) {
    store(output + (8 * (row + i / 2 * 8) + column + i % 2), bits_of(d[i]));
  }
}
)";

// Elements of 2 bytes: lane l holds words of row l / 4 of four 8x8 matrices. Stored as they are,
// and transposed, which store_matrices_transposed() undoes once more.
const std::string kStoreMatrices = std::string(kParams) + R"(
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto straight = shared<Bytes16>(0);
  const auto transposed = shared<Bytes16>(512);
  MatrixFragments f;
  for (int32_t i = 0; i < 4; ++i) f.word[i] = load(global(params.input) + 32 * i + t);
  store_matrices(straight + t, f);
  store_matrices_transposed(transposed + t, f);
  sync_warp();
  for (int32_t i = 0; i < 8; ++i) {
    store(global(params.output) + 32 * i + t, load(shared<uint32_t>(0) + 32 * i + t));
  }
}
)";

TEST(SimulatedStoreMatrices, PutRowsWhereTheLanesSay) {
  // Word `l` of matrix `i` is lane l's; words of a row of 8 elements are those of 4 lanes.
  const std::vector<uint32_t> input = random_words(128, 4);
  const auto output = run(kStoreMatrices, input, 256);
  const auto element = [](const std::vector<uint32_t>& words, std::size_t first, std::size_t row,
                          std::size_t column) {
    return words[first + 4 * row + column / 2] >> 16 * (column % 2) & 0xffffu;
  };
  for (std::size_t matrix = 0; matrix < 4; ++matrix) {
    for (std::size_t row = 0; row < 8; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        const uint32_t wanted = element(input, 32 * matrix, row, column);
        ASSERT_EQ(element(output, 32 * matrix, row, column), wanted);
        ASSERT_EQ(element(output, 128 + 32 * matrix, column, row), wanted);
      }
    }
  }
}

double decode_e4m3(uint32_t code) {
  if ((code & 0x7f) == 0x7f) return NAN;
  const int exponent = static_cast<int>(code >> 3 & 15);
  const double magnitude =
      exponent == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(SimulatedMma, AddsTheExactSumOfProducts) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<uint32_t> input = random_words(192 + 128, seed);
    if (seed % 4 != 0) {  // no NaN
      for (std::size_t i = 0; i < 192; ++i) input[i] &= 0xf7f7f7f7u;
    }
    for (std::size_t i = 192; i < input.size(); ++i) {
      input[i] = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(input[i])));
    }
    const auto output = run(kMma, input, 128, {.seed = seed});
    const auto* bytes = reinterpret_cast<const uint8_t*>(input.data());
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 8; ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < 32; ++k) {
          sum += decode_e4m3(bytes[32 * m + k]) * decode_e4m3(bytes[512 + 32 * n + k]);
        }
        const auto d = std::bit_cast<float>(input[192 + 8 * m + n]);
        const auto wanted = static_cast<float>(static_cast<double>(d) + sum);
        const uint32_t bits = std::isnan(wanted) ? 0x7fffffffu : std::bit_cast<uint32_t>(wanted);
        ASSERT_EQ(output[8 * m + n], bits) << "seed " << seed << ", row " << m << ", column " << n;
      }
    }
  }
}

}  // namespace
}  // namespace moejit::runtime
