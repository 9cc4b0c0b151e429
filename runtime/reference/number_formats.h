// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

// The number formats of the CPU reference, in exact integer arithmetic. Nothing here depends on the
// rounding mode, on compiler flags or on the project's kernels.
namespace moejit::reference {

// Largest finite values, as floats.
inline constexpr float kE4m3Max = 448.0F;
inline constexpr float kE5m2Max = 57344.0F;
inline constexpr float kBf16Max = 0x1.FEp127F;  // bits 0x7F7F0000

inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float float_of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// bf16 is the upper half of a float: widening is exact.
inline float float_from_bf16(std::uint16_t bits) {
  return float_of_bits(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest even; overflow gives Inf. A NaN stays a NaN of the same sign and is made quiet.
std::uint16_t bf16_from_float(float value);
// Rounds to a float first.
inline std::uint16_t bf16_from_double(double value) {
  return bf16_from_float(static_cast<float>(value));
}
std::vector<std::uint16_t> bf16_from_floats(std::span<const float> values);

// `kE4m3` is the "fn" variant: no Inf, one NaN per sign (0x7F, 0xFF). `kE5m2` follows IEEE.
enum class Fp8Format { kE4m3, kE5m2 };

// Converts fp32 to fp8 as `cvt.rn.satfinite` does. It rounds to nearest even, saturates to the
// largest finite value (also from Inf), keeps the sign of zero, and turns any NaN into 0x7F.
std::uint8_t encode_fp8(float value, Fp8Format format);

// Converts fp8 to fp32, exactly. NaN codes give a quiet NaN, the Inf codes of E5M2 give Inf.
float decode_fp8(std::uint8_t code, Fp8Format format);

inline std::uint8_t encode_e4m3(float value) { return encode_fp8(value, Fp8Format::kE4m3); }
inline float decode_e4m3(std::uint8_t code) { return decode_fp8(code, Fp8Format::kE4m3); }
inline std::uint8_t encode_e5m2(float value) { return encode_fp8(value, Fp8Format::kE5m2); }
inline float decode_e5m2(std::uint8_t code) { return decode_fp8(code, Fp8Format::kE5m2); }

}  // namespace moejit::reference
