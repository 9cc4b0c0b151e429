// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the simulator's WGMMA, and that of the CPU reference, against what the tensor
// cores of Hopper GPUs answered: each bit of each sum.

#include "tests/sim/support/chip_answers.h"

#include "runtime/reference/tensor_core.h"
#include "runtime/simulator/wgmma_arithmetic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

constexpr int64_t kStepBytes = 32;
constexpr int64_t kChainBytes = 128;
constexpr int32_t kColumns = 16;

using reference::OperandFormat;
using runtime::VectorLevel;

sim::OperandFormat simulated_format(OperandFormat format) {
  if (format == OperandFormat::kBf16) return sim::OperandFormat::kBf16;
  return format == OperandFormat::kE4m3 ? sim::OperandFormat::kE4m3 : sim::OperandFormat::kE5m2;
}

// The sums of a warpgroup, where its threads hold them.
class Warpgroup {
 public:
  Warpgroup() {
    for (std::size_t thread = 0; thread < pointers_.size(); ++thread)
      pointers_[thread] = sums_[thread].data();
  }
  float& sum(int64_t row, int64_t column) {
    const int64_t thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    return sums_[static_cast<std::size_t>(thread)]
                [static_cast<std::size_t>(column / 8 * 4 + row % 16 / 8 * 2 + column % 2)];
  }
  float* const* pointers() const { return pointers_.data(); }

 private:
  std::array<std::array<float, kColumns / 2>, 128> sums_{};
  std::array<float*, 128> pointers_{};
};

// Returns the bytes [first, +32) of each row, and bytes that make NaN of rows that there are not.
std::vector<unsigned char> step_of(const std::vector<uint8_t>& matrix, int64_t row_bytes,
                                   int64_t first, int64_t rows) {
  std::vector<unsigned char> step(static_cast<std::size_t>(rows * kStepBytes), 0xff);
  for (int64_t row = 0; row < std::ssize(matrix) / row_bytes; ++row)
    std::memcpy(&step[static_cast<std::size_t>(row * kStepBytes)],
                &matrix[static_cast<std::size_t>(row * row_bytes + first)], kStepBytes);
  return step;
}

// Returns the bits that the simulator makes of the bytes [first, last) of the rows, at a level.
template <VectorLevel kLevel>
std::vector<uint32_t> simulated(const ChipAnswer& asked, const std::vector<uint32_t>& before,
                                int64_t first, int64_t last) {
  alignas(64) static std::array<std::byte, runtime::kWgmmaScratchBytes> scratch;
  Warpgroup group;
  for (std::size_t i = 0; i < before.size(); ++i)
    group.sum(static_cast<int64_t>(i) / asked.columns, static_cast<int64_t>(i) % asked.columns) =
        std::bit_cast<float>(before[i]);
  const runtime::MultiplyWgmma multiply = runtime::wgmma_arithmetic(
      simulated_format(asked.a_format), simulated_format(asked.b_format), kLevel);
  for (int64_t k = first; k < last; k += kStepBytes) {
    const auto a = step_of(asked.a, asked.row_bytes, k, runtime::kWgmmaRows);
    const auto b = step_of(asked.b, asked.row_bytes, k, kColumns);
    multiply({.a = a.data(),
              .b = b.data(),
              .columns = kColumns,
              .sums = group.pointers(),
              .accumulate = true,
              .scratch = scratch.data()});
  }
  std::vector<uint32_t> after;
  for (std::size_t i = 0; i < before.size(); ++i)
    after.push_back(std::bit_cast<uint32_t>(group.sum(static_cast<int64_t>(i) / asked.columns,
                                                      static_cast<int64_t>(i) % asked.columns)));
  return after;
}

reference::TensorCoreNumbers numbers(const std::vector<uint8_t>& bytes, OperandFormat format) {
  if (format != OperandFormat::kBf16)
    return {bytes, format == OperandFormat::kE4m3 ? reference::Fp8Format::kE4m3
                                                  : reference::Fp8Format::kE5m2};
  std::vector<uint16_t> words(bytes.size() / 2);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return reference::TensorCoreNumbers(words);
}

// Likewise of the reference.
std::vector<uint32_t> referred(const ChipAnswer& asked, const std::vector<uint32_t>& before,
                               int64_t first, int64_t last) {
  const auto a = numbers(asked.a, asked.a_format), b = numbers(asked.b, asked.b_format);
  const int64_t element_bytes = asked.a_format == OperandFormat::kBf16 ? 2 : 1;
  std::vector<uint32_t> after;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / asked.columns;
    const int64_t column = static_cast<int64_t>(i) % asked.columns;
    after.push_back(std::bit_cast<uint32_t>(reference::tensor_core_chain(
        a, (row * asked.row_bytes + first) / element_bytes, b,
        (column * asked.row_bytes + first) / element_bytes, (last - first) / element_bytes,
        std::bit_cast<float>(before[i]))));
  }
  return after;
}

// Returns the fp32 sums of chains of 128 products, in ascending order, from 0.
template <typename Chain>
std::vector<uint32_t> added_chains(const ChipAnswer& asked, const Chain& chain) {
  const std::vector<uint32_t> zeros(asked.before.size(), 0);
  std::vector<float> total(asked.before.size(), 0.0f);
  for (int64_t k = 0; k < asked.row_bytes; k += kChainBytes) {
    const auto part = chain(asked, zeros, k, std::min(k + kChainBytes, asked.row_bytes));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += std::bit_cast<float>(part[i]);
  }
  std::vector<uint32_t> bits;
  for (const float sum : total) bits.push_back(std::bit_cast<uint32_t>(sum));
  return bits;
}

// Says how many bits patterns differ and shows the first.
::testing::AssertionResult equal(const std::vector<uint32_t>& got,
                                 const std::vector<uint32_t>& wanted) {
  std::size_t differing = 0, first = 0;
  for (std::size_t i = wanted.size(); i-- > 0;) {
    if (got[i] == wanted[i]) continue;
    ++differing;
    first = i;
  }
  if (differing == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << fmt::format("{} of {} differ, the first is {}: {:08x} in place of {:08x}", differing,
                        wanted.size(), first, got[first], wanted[first]);
}

template <typename Chain>
void expect_answers(const std::string& file, const Chain& chain) {
  for (const ChipAnswer& asked : chip_answers(file)) {
    SCOPED_TRACE(fmt::format("formats {} and {}, {} bytes of a row",
                             static_cast<int>(asked.a_format), static_cast<int>(asked.b_format),
                             asked.row_bytes));
    EXPECT_TRUE(equal(chain(asked, asked.before, 0, asked.row_bytes), asked.after));
    if (asked.of_chains.empty()) continue;
    EXPECT_TRUE(equal(added_chains(asked, chain), asked.of_chains)) << "chains of 128";
  }
}

// Every format, sums of any size before, NaN, infinities, and the ends of fp32.
TEST(ChipAnswers, AreWhatTheSimulatorComputesForInstructions) {
  expect_answers("instructions.bin", simulated<VectorLevel::kBaseline>);
}

TEST(ChipAnswers, AreWhatTheSimulatorComputesForInstructionsWithAvx2) {
  if (runtime::vector_level() != VectorLevel::kAvx2) GTEST_SKIP() << "this processor has no AVX2";
  expect_answers("instructions.bin", simulated<VectorLevel::kAvx2>);
}

TEST(ChipAnswers, AreWhatTheReferenceComputesForInstructions) {
  expect_answers("instructions.bin", referred);
}

// Chains of up to 2048 products, whole and in parts of 128.
TEST(ChipAnswers, AreWhatTheSimulatorComputesForProductsOfALibrary) {
  expect_answers("library.bin", simulated<VectorLevel::kBaseline>);
}

TEST(ChipAnswers, AreWhatTheSimulatorComputesForProductsOfALibraryWithAvx2) {
  if (runtime::vector_level() != VectorLevel::kAvx2) GTEST_SKIP() << "this processor has no AVX2";
  expect_answers("library.bin", simulated<VectorLevel::kAvx2>);
}

TEST(ChipAnswers, AreWhatTheReferenceComputesForProductsOfALibrary) {
  expect_answers("library.bin", referred);
}

}  // namespace
}  // namespace moejit::testing
