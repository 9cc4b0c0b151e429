// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/tensor_core_questions.h"

#include "runtime/reference/random_inputs.h"

#include <algorithm>
#include <array>
#include <functional>

namespace moejit::check {
namespace {

using device::ProductFormats;

constexpr int64_t kInstructionBytes = 32;  // of a row, which one WGMMA multiplies

// A format of operands: a sign, a field of the exponent, and a mantissa.
struct CodeFormat {
  int32_t bytes;
  int32_t mantissa_bits;
  int32_t bias;
  uint32_t largest_code;               // that is finite
  std::array<uint32_t, 2> not_finite;  // codes

  constexpr uint32_t sign() const { return 1U << (8 * bytes - 1); }
  constexpr int32_t largest_field() const {
    return static_cast<int32_t>(largest_code >> mantissa_bits);
  }
};
constexpr CodeFormat kE4m3{1, 3, 7, 0x7E, {0x7F, 0xFF}};
constexpr CodeFormat kE5m2{1, 2, 15, 0x7B, {0x7C, 0x7D}};
constexpr CodeFormat kBf16{2, 7, 127, 0x7F7F, {0x7F80, 0x7FC0}};

struct CodeFormats {
  CodeFormat a, b;
};
CodeFormats code_formats(ProductFormats formats) {
  switch (formats) {
    case ProductFormats::kE4m3: return {kE4m3, kE4m3};
    case ProductFormats::kE5m2E4m3: return {kE5m2, kE4m3};
    case ProductFormats::kE4m3E5m2: return {kE4m3, kE5m2};
    case ProductFormats::kBf16: return {kBf16, kBf16};
  }
  return {kBf16, kBf16};
}

// Random numbers of one operand, by index.
struct Codes {
  const CodeFormat& format;
  const reference::RandomStream& random;

  // Returns a number with the exponent `low` to `high`, within what the format has.
  uint32_t between(int64_t index, int32_t low, int32_t high) const {
    const int32_t first = std::clamp(low + format.bias, 0, format.largest_field());
    const int32_t last = std::clamp(high + format.bias, first, format.largest_field());
    const uint64_t bits = random.bits(2 * static_cast<uint64_t>(index));
    const auto field = static_cast<uint32_t>(
        first + random.below(2 * static_cast<uint64_t>(index) + 1, last - first + 1));
    const uint32_t mantissa = static_cast<uint32_t>(bits) & ((1U << format.mantissa_bits) - 1);
    const uint32_t code = std::min(field << format.mantissa_bits | mantissa, format.largest_code);
    return code | (bits >> 32 & 1 ? format.sign() : 0);
  }
};

// The place of an element in a problem: `byte` counts the bytes of its row.
struct Place {
  int64_t index;
  int64_t byte;
  bool is_of_a;
};

struct Kind {
  std::string_view name;
  std::function<uint32_t(const Codes&, const Place&)> code;
};

constexpr int32_t kAnySize = 60;  // of bf16; FP8 has fewer exponents
constexpr int32_t kCut = 13;      // bits below a sum where FP8 of Hopper is cut

uint32_t any_size(const Codes& codes, const Place& place) {
  return codes.between(place.index, -kAnySize, kAnySize);
}
uint32_t near_one(const Codes& codes, const Place& place) {
  return codes.between(place.index, -2, 2);
}
// The products of the first instruction are large, the others end where sums are cut.
uint32_t after_large(const Codes& codes, const Place& place) {
  const bool is_first = place.byte < kInstructionBytes;
  return is_first ? codes.between(place.index, 3, 6) : codes.between(place.index, -kCut, 0);
}
// Half of an instruction's products have the other half's opposites. The last differs a little.
uint32_t cancel(const Codes& codes, const Place& place) {
  constexpr int64_t kHalf = kInstructionBytes / 2;
  const int64_t in_instruction = place.byte % kInstructionBytes;
  if (in_instruction >= kInstructionBytes - codes.format.bytes)
    return codes.between(place.index, -6, -1);
  if (in_instruction < kHalf) return codes.between(place.index, -3, 6);
  const uint32_t code = codes.between(place.index - kHalf / codes.format.bytes, -3, 6);
  return place.is_of_a ? code ^ codes.format.sign() : code;
}
// One product in each instruction; the others are 0.
uint32_t alone(const Codes& codes, const Place& place) {
  const bool is_chosen = place.byte % kInstructionBytes == place.byte / kInstructionBytes * 6;
  return is_chosen || !place.is_of_a ? codes.between(place.index, -kCut, kCut) : 0;
}
// Subnormal numbers of A. In bf16 the products are among the subnormals of fp32.
uint32_t least(const Codes& codes, const Place& place) {
  const int32_t least = -codes.format.bias;
  return place.is_of_a ? codes.between(place.index, least, least + 1)
                       : codes.between(place.index, -8, 4);
}
// Sums leave fp32 where the operands are bf16.
uint32_t largest(const Codes& codes, const Place& place) {
  const int32_t largest = std::min(codes.format.largest_field() - codes.format.bias, 64);
  return codes.between(place.index, largest - 3, largest);
}
uint32_t not_finite(const Codes& codes, const Place& place) {
  constexpr int64_t kOneIn = 400;
  const auto index = static_cast<uint64_t>(place.index);
  const int64_t chosen = codes.random.below(~index, kOneIn);
  if (chosen < 2) return codes.format.not_finite[static_cast<std::size_t>(chosen)];
  return chosen == 2 ? 0 : codes.between(place.index, -4, 4);
}

std::vector<uint8_t> bytes_of(const Kind& kind, const CodeFormat& format, int64_t rows,
                              uint64_t purpose, bool is_of_a) {
  const reference::RandomStream random(2026, purpose);
  const Codes codes{format, random};
  std::vector<uint8_t> bytes;
  for (int64_t at = 0; at < rows * device::kSumRowBytes; at += format.bytes) {
    const uint32_t code = kind.code(
        codes, {.index = at / format.bytes, .byte = at % device::kSumRowBytes, .is_of_a = is_of_a});
    for (int32_t byte = 0; byte < format.bytes; ++byte)
      bytes.push_back(static_cast<uint8_t>(code >> (8 * byte)));
  }
  return bytes;
}

}  // namespace

std::vector<TensorCoreQuestion> tensor_core_questions(ProductFormats formats, int64_t problems) {
  const std::array kinds = {
      Kind{"any_size", any_size}, Kind{"near_one", near_one},    Kind{"after_large", after_large},
      Kind{"cancel", cancel},     Kind{"alone", alone},          Kind{"least", least},
      Kind{"largest", largest},   Kind{"not_finite", not_finite}};
  const auto [a, b] = code_formats(formats);
  std::vector<TensorCoreQuestion> questions;
  for (uint64_t i = 0; i < kinds.size(); ++i)
    questions.push_back(
        {kinds[i].name,
         {.formats = formats,
          .a = bytes_of(kinds[i], a, problems * device::kSumRows, 2 * i, true),
          .b = bytes_of(kinds[i], b, problems * device::kSumColumns, 2 * i + 1, false)}});
  return questions;
}

}  // namespace moejit::check
