// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of the bytes of a row when its scale s is replaced by a power of two S that is
// 2^shift times larger: each value is divided by 2^shift. A rule works on the four bytes of a word,
// which have the same shift. A rule has
//
//   kPassesOverZeroRows  whether S is the largest scale of the rows that hold more than zeros
//   pack()               the shifts of two rows, 0 to 255, as a word that one thread makes and
//                        others get by a shuffle
//   apply<kRow>()        four bytes of row 0 or 1 of the two
//
// Shifting the exponent field is enough if both exponents belong to normal numbers. In half
// precision nothing is special: every FP8 value is an f16, so is its product with a power of two as
// far as it matters, and the conversion back rounds once, to nearest even, into the subnormals. It
// costs the same for any byte and any shift, so warps never part.
//
// As far as it matters: f16 has multiples of 2^-24. A product of a value of at most 4 significant
// bits that is none of those is below 2^-20, and rounded to one at most 2^-20, while everything
// below 2^-10 (e4m3) or 2^-17 (e5m2) becomes 0.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/f16.cuh"

namespace moejit::device {

namespace detail {

template <typename Format>
inline constexpr int32_t kMantissaBits = 0;
template <>
inline constexpr int32_t kMantissaBits<E4m3> = 3;
template <>
inline constexpr int32_t kMantissaBits<E5m2> = 2;

// Returns the f16 numbers 2^-shift0 and 2^-shift1, shifts up to 24.
MOEJIT_DEVICE uint32_t f16_powers(int32_t shift0, int32_t shift1) {
  return ptx::f16_pair(ptx::float_from_bits(static_cast<uint32_t>(127 - shift0) << 23),
                       ptx::float_from_bits(static_cast<uint32_t>(127 - shift1) << 23));
}

MOEJIT_DEVICE uint32_t with_signs_of(uint32_t bytes, uint32_t signs) {
  return bytes | (signs & 0x80808080u);
}

}  // namespace detail

// The value, rounded to nearest even. NaN, infinities and the signs of zeros stay.
template <typename Format>
struct IdealRescale;

template <>
struct IdealRescale<E4m3> {
  static constexpr bool kPassesOverZeroRows = true;

  // From 19 on even 448 becomes 0.
  MOEJIT_DEVICE static uint32_t pack(int32_t shift0, int32_t shift1) {
    return detail::f16_powers(smaller(shift0, int32_t{24}), smaller(shift1, int32_t{24}));
  }
  template <int32_t kRow>
  MOEJIT_DEVICE static uint32_t apply(uint32_t bytes, uint32_t packed) {
    const auto product = ptx::multiply<kRow>(ptx::f16_from_e4m3(bytes), packed);
    return detail::with_signs_of(ptx::e4m3_from_f16(product), bytes);  // NaN has lost its sign
  }
};

template <>
struct IdealRescale<E5m2> {
  static constexpr bool kPassesOverZeroRows = true;

  // From 33 on even 57344 becomes 0. Two factors for each row, since 2^-32 is no f16: powers down
  // to 2^-16, which are the upper byte of an f16 each, and 0 where the shift is larger still.
  MOEJIT_DEVICE static uint32_t pack(int32_t shift0, int32_t shift1) {
    const int32_t first0 = smaller(shift0, int32_t{16}), first1 = smaller(shift1, int32_t{16});
    const uint32_t first = detail::f16_powers(first0, first1);
    const uint32_t second = detail::f16_powers(smaller(shift0 - first0, int32_t{17}),
                                               smaller(shift1 - first1, int32_t{17}));
    return ptx::permute_bytes<0x7351>(first, second);
  }
  template <int32_t kRow>
  MOEJIT_DEVICE static uint32_t apply(uint32_t bytes, uint32_t packed) {
    const uint32_t factors = ptx::permute_bytes<(kRow == 0 ? 0x1404 : 0x3424)>(packed, 0);
    const auto product =
        ptx::multiply<1>(ptx::multiply<0>(ptx::f16_from_e5m2(bytes), factors), factors);
    const uint32_t rounded = ptx::e5m2_from_f16(product);
    // Infinities and NaN: the exponent field is full, adding 1 to it reaches the byte's top bit.
    const uint32_t special = (bytes & 0x7f7f7f7fu) + 0x04040404u;
    const uint32_t kept = ptx::permute_bytes<0xba98>(special, 0);
    return (bytes & kept) | (rounded & ~kept);
  }
};

// Keeps every byte, for rows that have the scale of their group. Scales are neither read nor
// written.
struct KeepBytes {
  static constexpr bool kKeepsBytes = true;
};

// As Transformer Engine's fork for FP8-Flow-MoE has it: S is the largest scale of all rows; zeros
// and subnormals become +0; the exponent field is lowered by the shift, to 0 at least, and the
// mantissa field stays, of NaN too.
template <typename Format>
struct ForkCompatRescale {
  static constexpr bool kPassesOverZeroRows = false;

  // Returns the shift in units of the exponent field, in bytes 0 and 2. 128 lowers any field to 0.
  MOEJIT_DEVICE static uint32_t pack(int32_t shift0, int32_t shift1) {
    const int32_t most = 128 / kUnit;
    return static_cast<uint32_t>(smaller(shift0, most) * kUnit) |
           (static_cast<uint32_t>(smaller(shift1, most) * kUnit) << 16);
  }
  template <int32_t kRow>
  MOEJIT_DEVICE static uint32_t apply(uint32_t bytes, uint32_t packed) {
    const uint32_t units = ptx::permute_bytes<(kRow == 0 ? 0x0000 : 0x2222)>(packed, 0);
    // With the top bit set no byte borrows from the next, and the bit stays where the field does
    // not fall below 0.
    const uint32_t lowered = (bytes | 0x80808080u) - units;
    const uint32_t stays = ptx::permute_bytes<0xba98>(lowered, 0);
    const uint32_t magnitude = lowered & 0x7f7f7f7fu & (stays | kMantissas);
    const uint32_t is_normal = (bytes & 0x7f7f7f7fu) + (0x80808080u - kUnit * 0x01010101u);
    return detail::with_signs_of(magnitude, bytes) & ptx::permute_bytes<0xba98>(is_normal, 0);
  }

 private:
  static constexpr int32_t kUnit = 1 << detail::kMantissaBits<Format>;
  static constexpr uint32_t kMantissas = (kUnit - 1) * 0x01010101u;
};

}  // namespace moejit::device
