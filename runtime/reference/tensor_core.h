// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"

#include <cstdint>
#include <span>
#include <vector>

// What tensor cores compute, to the bit. The model of Hopper's follows the answers of chips
// (tests/fixtures/tensor_cores): the vendor documents none. Others have its form, with the numbers
// of MMA-Sim (arXiv:2511.10909).
namespace moejit::reference {

// The formats of operands.
enum class OperandFormat { kE4m3, kE5m2, kBf16, kF16 };

// How the kernels of a target multiply: by default Hopper's, by WGMMA.
struct TensorCoreRule {
  bool multiplies_in_f16 = false;  // whether tensor cores get FP8 in f16
  int products = 16;               // of f16 or bf16 that are added at once: 16 or 8
  int fraction = 25;               // F of these, see tensor_core_chain()
  bool operator==(const TensorCoreRule&) const = default;
};

// Returns the format in which tensor cores get FP8: where they have no WGMMA, f16 (kF16).
inline OperandFormat operand_format(Fp8Format format, const TensorCoreRule& rule = {}) {
  if (rule.multiplies_in_f16) return OperandFormat::kF16;
  return format == Fp8Format::kE4m3 ? OperandFormat::kE4m3 : OperandFormat::kE5m2;
}

// Numbers of one format as tensor cores read them. Subnormals have the exponent of the smallest
// normal numbers.
class TensorCoreNumbers {
 public:
  TensorCoreNumbers(std::span<const std::uint8_t> codes, Fp8Format format,
                    const TensorCoreRule& rule = {});
  explicit TensorCoreNumbers(std::span<const std::uint16_t> bf16, const TensorCoreRule& rule = {});
  // Takes numbers that the format has.
  TensorCoreNumbers(std::span<const float> values, OperandFormat format,
                    const TensorCoreRule& rule = {});

  OperandFormat format() const { return format_; }
  const TensorCoreRule& rule() const { return rule_; }
  // The exponents; kNoExponent for 0, and kNotFinite for NaN and infinities.
  const std::int32_t* exponents() const { return exponents_.data(); }
  // The numbers as they are, infinities and NaN too.
  const float* values() const { return values_.data(); }

  static constexpr std::int32_t kNoExponent = -100'000;
  static constexpr std::int32_t kNotFinite = 1'000'000;

 private:
  void reserve(std::size_t count);

  OperandFormat format_;
  TensorCoreRule rule_;
  std::vector<std::int32_t> exponents_;
  std::vector<float> values_;
};

// Returns what a chain of products leaves in an accumulator that begins with `sum`. It adds the
// products of a[first_a, +length) and b[first_b, +length) in ascending order, in steps of 32. Both
// are FP8; or both are bf16, or f16, in steps of rule().products. In steps of 8, FP8 that was
// unpacked to f16 has an order of its own. Products with k % 4 < 2 come first of each 16: a lane
// unpacks four neighbors to two words, one for each step.
//
// Let e be the sum of the exponents of a product's operands. Let E be the largest of -133, the e of
// the products that are not 0, and the exponent of the sum so far. The latter is floor(log2), at
// least -126, if the sum is not 0. Each step makes
//   sum = keep(sum of cut(product, 2^(E - F)) + cut(sum so far, 2^(E - F)))
// There cut() rounds toward zero to a multiple, and the additions are exact. keep() rounds toward
// zero to F bits behind the first one, for bf16 and f16 to the bits of fp32. F is 13 with FP8,
// rule().fraction with bf16 and f16. Sums beyond fp32 are infinite, and there is no -0. A NaN, 0
// times an infinity, and infinities of both signs make the NaN 0x7FFFFFFF.
float tensor_core_chain(const TensorCoreNumbers& a, std::int64_t first_a,
                        const TensorCoreNumbers& b, std::int64_t first_b, std::int64_t length,
                        float sum = 0.0F);

}  // namespace moejit::reference
