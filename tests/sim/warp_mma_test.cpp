// SPDX-License-Identifier: Apache-2.0
// Products of a warp in f16 and bf16, beside the reference's chains.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/tensor_core.h"
#include "tests/sim/support/sim_kernel.h"

#include <algorithm>
#include <bit>
#include <fmt/core.h>
#include <random>

namespace moejit::runtime {
namespace {

using reference::OperandFormat;
using reference::TensorCoreNumbers;

constexpr std::size_t kA = 16 * 8, kB = 8 * 8, kD = 16 * 8;  // words of A, of B, and elements of D

// Input: A [16, 16] and B [8, 16] of 2-byte elements, then D [16, 8] in fp32.
std::string kernel_text(std::string_view product) {
  return fmt::format(R"(
struct Params {{ const uint32_t* input; uint32_t* output; }};
MOEJIT_KERNEL(32, 1, test_kernel, Params) {{
  const int32_t t = thread_index(), row = t / 4, word = t % 4;
  const auto a_words = global(params.input), b_words = a_words + 128, start = b_words + 64;
  uint32_t a[4];
  for (int32_t i = 0; i < 4; ++i)
    a[i] = load(a_words + (8 * (row + i % 2 * 8) + word + i / 2 * 4));
  float d[4];
  const auto place = [&](int32_t i) {{ return 8 * (row + i / 2 * 8) + 2 * word + i % 2; }};
  for (int32_t i = 0; i < 4; ++i) d[i] = float_from_bits(load(start + place(i)));
  {}(d, a, load(b_words + (8 * row + word)), load(b_words + (8 * row + word + 4)));
  for (int32_t i = 0; i < 4; ++i) store(global(params.output) + place(i), bits_of(d[i]));
}}
)",
                     product);
}

float f16_value(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const auto mantissa = static_cast<float>(bits & 1023);
  float value =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -value : value;
}

TensorCoreNumbers numbers(const uint32_t* words, std::size_t count, OperandFormat format,
                          const reference::TensorCoreRule& rule) {
  std::vector<uint16_t> halves;
  for (std::size_t i = 0; i < count; ++i) {
    halves.push_back(static_cast<uint16_t>(words[i]));
    halves.push_back(static_cast<uint16_t>(words[i] >> 16));
  }
  if (format == OperandFormat::kBf16) return TensorCoreNumbers(halves, rule);
  std::vector<float> values;
  for (const uint16_t bits : halves) values.push_back(f16_value(bits));
  return TensorCoreNumbers(values, format, rule);
}

// Seeds choose what operands and sums are: any bits; no infinities and NaN; exponents that are so
// near each other that most products count.
std::vector<uint32_t> input_of(uint32_t seed, OperandFormat format) {
  std::mt19937 random(seed);
  std::vector<uint32_t> input(kA + kB + kD);
  std::ranges::generate(input, random);
  const bool is_bf16 = format == OperandFormat::kBf16;
  const uint32_t fewer = is_bf16 ? 0xbfffbfff : 0xfbfffbff;  // a bit of the exponents less
  const uint32_t near = is_bf16 ? 0x83ff83ff : 0x9fff9fff, one = is_bf16 ? 0x3c003c00 : 0x20002000;
  for (std::size_t i = 0; i < kA + kB && seed % 3 > 0; ++i)
    input[i] = seed % 3 == 1 ? input[i] & fewer : (input[i] & near) | one;
  for (std::size_t i = kA + kB; i < input.size() && seed % 3 == 2; ++i)
    input[i] = (input[i] & 0x81ffffff) | 0x3c000000;
  return input;
}

void expect_chains(OperandFormat format, std::string_view product,
                   const compiler::Target& target = compiler::simulator_target()) {
  const reference::TensorCoreRule rule{.products = target.mma.products,
                                       .fraction = target.mma.fraction};
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const std::vector<uint32_t> input = input_of(seed, format);
    std::vector<SimBuffer> buffers{buffer_of("input", input, false),
                                   buffer_of("output", std::vector<uint32_t>(kD))};
    buffers[1].written = false;
    const auto result =
        run_test_kernel(kernel_text(product), {.seed = seed, .target = target}, buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    const auto output = values_of<uint32_t>(buffers[1]);
    const TensorCoreNumbers a = numbers(input.data(), kA, format, rule);
    const TensorCoreNumbers b = numbers(input.data() + kA, kB, format, rule);
    for (std::size_t i = 0; i < kD; ++i) {
      const auto row = static_cast<int64_t>(i / 8), column = static_cast<int64_t>(i % 8);
      const float wanted = reference::tensor_core_chain(a, 16 * row, b, 16 * column, 16,
                                                        std::bit_cast<float>(input[kA + kB + i]));
      ASSERT_EQ(output[i], std::bit_cast<uint32_t>(wanted)) << "seed " << seed << ", element " << i;
    }
  }
}

TEST(SimulatedWarpMma, AddsBf16AsTheReference) { expect_chains(OperandFormat::kBf16, "mma_bf16"); }

TEST(SimulatedWarpMma, AddsF16AsTheReference) { expect_chains(OperandFormat::kF16, "mma_f16"); }

// GPUs before Hopper add 8 products at once.
TEST(SimulatedWarpMma, AddsByTheRuleOfTheTarget) {
  const compiler::Target ampere = compiler::parse_target("sim:sm_80").value();
  expect_chains(OperandFormat::kBf16, "mma_bf16", ampere);
  expect_chains(OperandFormat::kF16, "mma_f16", ampere);
}

// A [64, 128] and B [8, 128] in e4m3, then D [64, 8] in fp32.
constexpr const char* kUnpackedProducts = R"(
struct Params { const Bytes16* input; float* output; };
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const int32_t t = thread_index(), lane = t % 32;
  for (int32_t chunk = 0; t < 72 && chunk < 8; ++chunk)
    store(shared<Bytes16>(0) + (8 * t + (chunk ^ (t % 8))),
          load(global(params.input) + (8 * t + chunk)));
  sync_cta();
  WgmmaSum<8> sum;
  wgmma_rows_e4m3(sum, matrix_descriptor(shared<Bytes16>(0)),
                  matrix_descriptor(shared<Bytes16>(8192)), false);
  wgmma_wait<0>(sum);
  const int32_t row = t / 32 * 16 + lane / 4;
  for (int32_t i = 0; i < 4; ++i)
    store(global(params.output) + (8 * (row + i / 2 * 8) + 2 * (lane % 4) + i % 2), sum(i));
}
)";

// Codes of all magnitudes, so that sums lose bits in the order of their additions.
TEST(SimulatedWarpMma, AddsUnpackedFp8InItsOrder) {
  constexpr std::size_t kCodesOfA = 64 * 128, kCodes = 72 * 128;
  for (const char* name : {"sim:sm_80", "sim:sm_120f"}) {
    const compiler::Target target = compiler::parse_target(name).value();
    const reference::TensorCoreRule rule{.multiplies_in_f16 = true,
                                         .products = target.mma.products,
                                         .fraction = target.mma.fraction};
    std::mt19937 random(1);
    std::vector<uint8_t> codes(kCodes);
    std::ranges::generate(
        codes, [&] { return static_cast<uint8_t>(random() % 127 + random() % 2 * 128); });
    std::vector<SimBuffer> buffers{buffer_of("input", codes, false),
                                   buffer_of("output", std::vector<float>(64 * 8))};
    buffers[1].written = false;
    const auto result = run_test_kernel(
        kUnpackedProducts, {.threads = 128, .shared_bytes = 9216, .target = target}, buffers);
    ASSERT_TRUE(result.has_value()) << to_string(result.error());
    const auto output = values_of<float>(buffers[1]);
    const auto format = reference::Fp8Format::kE4m3;
    const TensorCoreNumbers a(std::span<const uint8_t>(codes).first(kCodesOfA), format, rule);
    const TensorCoreNumbers b(std::span<const uint8_t>(codes).subspan(kCodesOfA), format, rule);
    for (std::size_t i = 0; i < output.size(); ++i) {
      const auto row = static_cast<int64_t>(i / 8), column = static_cast<int64_t>(i % 8);
      ASSERT_EQ(output[i], reference::tensor_core_chain(a, 128 * row, b, 128 * column, 128))
          << name << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace moejit::runtime
