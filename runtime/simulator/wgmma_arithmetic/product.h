// SPDX-License-Identifier: Apache-2.0
#pragma once

// The arithmetic of one WGMMA, to the bit as Hopper's tensor cores do it (docs/recipes.md, "What
// tensor cores add"). With F = kFraction, for each sum:
//   e    = exponent of a + exponent of b    of each product, as the operands' fields say
//   E    = the largest e of products that are not 0, and of the sum so far, c; -133 at least
//   c'   = the products and c, each cut toward zero at 2^(E - F), added exactly, and cut toward
//          zero to kKept bits behind the first one
//
// Here 8 columns are the lanes of a vector. Cut at 2^(E - F), a product is an integer below 2^(F +
// 2). It is a times 2^(F - E), then times b, which is exact, and the conversion to integers cuts.
// Exponents are compared by themselves, in short integers.
//
// Several files compile this, each for other instructions of the processor, and every one has to
// keep its own. So all of it is in an anonymous namespace.

#include "runtime/simulator/wgmma_arithmetic.h"
#include "runtime/simulator/wgmma_arithmetic/formats.h"

namespace moejit::runtime {
namespace {

typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));
typedef uint32_t Unsigned8 __attribute__((vector_size(32)));
typedef double Double8 __attribute__((vector_size(64)));
typedef int64_t Long8 __attribute__((vector_size(64)));

inline constexpr int32_t kWgmmaRowBytes = 32;
inline constexpr int32_t kExponentGroups = 8;
inline constexpr int32_t kLeastExponent = -133;
inline constexpr int32_t kFp32Fraction = 23;
inline constexpr int32_t kNoSum = -1000;  // the exponent of a sum of nothing
inline constexpr uint32_t kCanonicalNan = 0x7fffffff;
inline constexpr int32_t kInfinityBits = 0x7f800000;

// The operands as they are multiplied, without infinities and NaN. Exponents stand in groups of
// some products by 8 columns; exponents of A are repeated for the columns.
template <typename Format>
struct WgmmaNumbers {
  using Exponents = typename Format::Exponents;
  struct Panel {
    Float8 value[Format::kDepth];
    Exponents exponent[kExponentGroups];
    Int8 is_nan;  // all ones in columns that have a NaN
  };
  float value[kWgmmaRows][Format::kDepth];  // of A
  Exponents exponent[kWgmmaRows][kExponentGroups];
  bool is_nan[kWgmmaRows];
  bool has_infinities;
  bool is_narrow;
  Panel panels[32];
};

template <typename Vector>
inline Vector larger(const Vector& a, const Vector& b) {
  return a > b ? a : b;
}

// Notes in `to` what one number is, and returns its finite part.
template <typename Format, typename Own>
inline float finite_part(float value, int32_t exponent, Own& to, bool& is_nan) {
  if (value != value) is_nan = true;
  const bool is_infinite = __builtin_isinf(value);
  to.has_infinities |= is_infinite;
  to.is_narrow &= Format::is_narrow(exponent);
  return value != value || is_infinite ? 0.0f : value;
}

template <typename A, typename Own>
void read_wgmma_rows(const unsigned char* a, Own& to) {
  for (int32_t row = 0; row < kWgmmaRows; ++row) {
    const unsigned char* bytes = a + kWgmmaRowBytes * row;
    to.is_nan[row] = false;
    for (int32_t k = 0; k < A::kDepth; ++k) {
      const int32_t exponent = A::exponent(bytes, k);
      to.value[row][k] = finite_part<A>(A::value(bytes, k), exponent, to, to.is_nan[row]);
      constexpr int32_t kSize = sizeof(typename A::Exponents) / 8 * kExponentGroups / A::kDepth;
      const uint64_t ones = kSize == 1 ? 0x0101010101010101u : 0x0001000100010001u;
      const uint64_t repeated =
          ones * (static_cast<uint32_t>(exponent) & (kSize == 1 ? 0xff : 0xffff));
      auto* place = reinterpret_cast<unsigned char*>(to.exponent[row]) + 8 * kSize * k;
      for (int32_t i = 0; i < kSize; ++i) __builtin_memcpy(place + 8 * i, &repeated, 8);
    }
  }
}

template <typename B, typename Own>
void read_wgmma_columns(const unsigned char* b, int32_t columns, Own& to) {
  for (int32_t column = 0; column < columns; ++column) {
    const unsigned char* bytes = b + kWgmmaRowBytes * column;
    auto& panel = to.panels[column / 8];
    auto* values = reinterpret_cast<float*>(panel.value) + column % 8;
    bool is_nan = false;
    for (int32_t k = 0; k < B::kDepth; ++k) {
      const int32_t exponent = B::exponent(bytes, k);
      values[8 * k] = finite_part<B>(B::value(bytes, k), exponent, to, is_nan);
      constexpr int32_t kGroup = B::kDepth / kExponentGroups;
      panel.exponent[k / kGroup][k % kGroup * 8 + column % 8] = exponent;
    }
    panel.is_nan[column % 8] = -int32_t{is_nan};
  }
}

inline void largest_of_groups(const Bytes32& all, Int8& largest) {
  typedef signed char Bytes16 __attribute__((vector_size(16)));
  typedef signed char Bytes8 __attribute__((vector_size(8)));
  Bytes16 half[2];
  __builtin_memcpy(half, &all, 32);
  const auto both = larger<Bytes16>(half[0], half[1]);
  Bytes8 quarter[2];
  __builtin_memcpy(quarter, &both, 16);
  largest = __builtin_convertvector(larger<Bytes8>(quarter[0], quarter[1]), Int8);
}
inline void largest_of_groups(const Shorts16& all, Int8& largest) {
  typedef int16_t Shorts8 __attribute__((vector_size(16)));
  Shorts8 half[2];
  __builtin_memcpy(half, &all, 32);
  largest = __builtin_convertvector(larger<Shorts8>(half[0], half[1]), Int8);
}

// The largest exponent of the products of a row with each of 8 columns; kNoSum where all are 0.
template <typename Format>
inline void largest_exponents(const typename Format::Exponents* a,
                              const typename Format::Exponents* b, Int8& largest) {
  using Exponents = typename Format::Exponents;
  Exponents all = a[0] + b[0];
  for (int32_t g = 1; g < kExponentGroups; ++g) all = larger<Exponents>(all, a[g] + b[g]);
  largest_of_groups(all, largest);
  largest = largest < Format::kNoExponent / 2 ? Int8{} + kNoSum : largest;
}

// 2^exponents, which the type has.
inline void powers_of_two(const Int8& exponents, Float8& powers) {
  powers = reinterpret_cast<Float8>((exponents + 127) << 23);
}
inline void powers_of_two(const Int8& exponents, Double8& powers) {
  powers = reinterpret_cast<Double8>((__builtin_convertvector(exponents, Long8) + 1023) << 52);
}

// Adds up the products of kRows rows and a panel in units of 1 / scales[r], each cut.
template <typename Real8, int32_t kRows, int32_t kDepth>
inline void sum_cut_products(const float (*a)[kDepth], const Float8* b, const Real8* scales,
                             Int8* sums) {
  Real8 scale[kRows];
  Int8 sum[kRows];
#pragma GCC unroll 4
  for (int32_t r = 0; r < kRows; ++r) {
    scale[r] = scales[r];
    sum[r] = Int8{};
  }
  for (int32_t k = 0; k < kDepth; ++k) {
    const auto column = __builtin_convertvector(b[k], Real8);
#pragma GCC unroll 4
    for (int32_t r = 0; r < kRows; ++r)
      sum[r] += __builtin_convertvector(a[r][k] * scale[r] * column, Int8);
  }
#pragma GCC unroll 4
  for (int32_t r = 0; r < kRows; ++r) sums[r] = sum[r];
}

// A sum so far, of 8 columns.
struct WgmmaAddend {
  Unsigned8 bits;
  Int8 exponent;  // kNoSum for 0
};

inline void read_addend(const Unsigned8& bits, WgmmaAddend& addend) {
  addend.bits = bits;
  const auto field = reinterpret_cast<Int8>(bits >> kFp32Fraction & 255);
  const auto magnitude = reinterpret_cast<Int8>(bits & 0x7fffffff);
  addend.exponent = magnitude == 0 ? Int8{} + kNoSum : larger<Int8>(field, Int8{} + 1) - 127;
}

// The sum of `products`, which count 2^(exponent - F), and the addend, cut as sums are.
template <typename Format>
inline void add_cut(const Int8& products, const Int8& exponent, const WgmmaAddend& addend,
                    Unsigned8& result) {
  constexpr int32_t kMore = Format::kFraction - kFp32Fraction;  // bits than fp32 has
  const Int8 has_field = reinterpret_cast<Int8>(addend.bits >> kFp32Fraction & 255) != 0;
  const auto mantissa = reinterpret_cast<Int8>(addend.bits & 0x7fffff);
  const Int8 significand = (mantissa | (has_field & 0x800000)) << (kMore > 0 ? kMore : 0);
  const Int8 shift = (kMore < 0 ? -kMore : 0) + exponent - addend.exponent;
  const Int8 cut = significand >> (shift < 31 ? shift : Int8{} + 31);
  const Int8 signed_cut = reinterpret_cast<Int8>(addend.bits) < 0 ? -cut : cut;
  // Exact in double, where cutting bits off cuts toward zero.
  const Double8 total =
      __builtin_convertvector(products, Double8) + __builtin_convertvector(signed_cut, Double8);
  const auto kept = reinterpret_cast<Double8>(reinterpret_cast<Long8>(total) &
                                              -(int64_t{1} << (52 - Format::kKept)));
  Double8 unit;
  powers_of_two(exponent - Format::kFraction, unit);
  Double8 sum = kept * unit;
  if constexpr (kMore > 0) {  // subnormals have fewer bits, and there is no -0
    const Long8 is_small = (sum < 0x1p-126) & (sum > -0x1p-126);
    const Double8 cut_small =
        __builtin_convertvector(__builtin_convertvector(sum * 0x1p149, Int8), Double8) * 0x1p-149;
    sum = is_small ? cut_small : sum;
  }
  result = reinterpret_cast<Unsigned8>(__builtin_convertvector(sum, Float8));
}

// The sums of one row and 8 columns, which four neighboring lanes hold (ptx::WgmmaSum), two each.
struct SumsOfRow {
  SumsOfRow(const WgmmaOperands& operands, int32_t row, int32_t panel)
      : lanes(operands.sums + 32 * (row / 16) + 4 * (row % 8)),
        element(4 * panel + 2 * (row % 16 / 8)) {}
  void load(Unsigned8& bits) const {
    for (int32_t i = 0; i < 4; ++i)
      __builtin_memcpy(reinterpret_cast<uint32_t*>(&bits) + 2 * i, lanes[i] + element, 8);
  }
  void store(const Unsigned8& bits) const {
    for (int32_t i = 0; i < 4; ++i)
      __builtin_memcpy(lanes[i] + element, reinterpret_cast<const uint32_t*>(&bits) + 2 * i, 8);
  }

  float* const* lanes;
  int32_t element;
};

// Adds where products may be infinite: infinities of both signs make NaN, as 0 times one does.
template <typename A, typename B>
uint32_t sum_with_infinities(const unsigned char* a, const unsigned char* b, uint32_t c,
                             uint32_t finite_sum) {
  double sum = __builtin_bit_cast(float, c);
  for (int32_t k = 0; k < A::kDepth; ++k) sum += double{A::value(a, k)} * double{B::value(b, k)};
  if (sum != sum) return kCanonicalNan;
  return __builtin_isinf(sum) ? __builtin_bit_cast(uint32_t, static_cast<float>(sum)) : finite_sum;
}

// The sums of kRows rows from `first` on with a panel.
template <typename A, typename B, typename Real8, int32_t kRows>
void multiply_panel(const WgmmaOperands& operands, const WgmmaNumbers<A>& own, int32_t first,
                    int32_t p) {
  constexpr int32_t kBeyond = A::kMost + A::kFraction + 2;  // no product counts beside such a sum
  const auto& panel = own.panels[p];
  WgmmaAddend addends[kRows];
  Int8 exponents[kRows], products[kRows];
  Real8 scales[kRows];
  for (int32_t r = 0; r < kRows; ++r) {
    Unsigned8 old{};
    if (operands.accumulate) SumsOfRow(operands, first + r, p).load(old);
    read_addend(old, addends[r]);
    Int8 largest;
    largest_exponents<A>(own.exponent[first + r], panel.exponent, largest);
    exponents[r] =
        larger<Int8>(larger<Int8>(largest, addends[r].exponent), Int8{} + kLeastExponent);
    Int8 scaled = exponents[r];
    if constexpr (sizeof(Real8) == sizeof(Float8)) {
      scaled = larger<Int8>(scaled, Int8{} + A::kLeast);
      scaled = scaled < kBeyond ? scaled : Int8{} + kBeyond;
    }
    powers_of_two(A::kFraction - scaled, scales[r]);
  }
  sum_cut_products<Real8, kRows, A::kDepth>(own.value + first, panel.value, scales, products);
  for (int32_t r = 0; r < kRows; ++r) {
    Unsigned8 sum;
    add_cut<A>(products[r], exponents[r], addends[r], sum);
    const Unsigned8& old = addends[r].bits;
    const auto magnitude = reinterpret_cast<Int8>(old & 0x7fffffff);
    sum = magnitude == kInfinityBits ? old : sum;
    if (own.has_infinities) {
      for (int32_t i = 0; i < 8; ++i)
        sum[i] =
            sum_with_infinities<A, B>(operands.a + kWgmmaRowBytes * (first + r),
                                      operands.b + kWgmmaRowBytes * (8 * p + i), old[i], sum[i]);
    }
    const Int8 is_nan =
        panel.is_nan | (magnitude > kInfinityBits) | -int32_t{own.is_nan[first + r]};
    sum = is_nan != 0 ? Unsigned8{} + kCanonicalNan : sum;
    SumsOfRow(operands, first + r, p).store(sum);
  }
}

template <typename A, typename B, typename Real8>
void multiply_panels(const WgmmaOperands& operands, const WgmmaNumbers<A>& own) {
  constexpr int32_t kRowsAtOnce = 4;
  for (int32_t p = 0; p < operands.columns / 8; ++p)
    for (int32_t first = 0; first < kWgmmaRows; first += kRowsAtOnce)
      multiply_panel<A, B, Real8, kRowsAtOnce>(operands, own, first, p);
}

// `A` and `B` are the formats of the operands: WgmmaE4m3 or WgmmaE5m2, or WgmmaBf16 for both.
template <typename A, typename B>
void multiply(const WgmmaOperands& operands) {
  static_assert(A::kDepth == B::kDepth, "operands of 8 bits, or both of 16");
  static_assert(sizeof(WgmmaNumbers<A>) <= kWgmmaScratchBytes, "scratch is too small");
  auto& own = *static_cast<WgmmaNumbers<A>*>(operands.scratch);
  own.has_infinities = false;
  own.is_narrow = true;
  read_wgmma_rows<A>(operands.a, own);
  read_wgmma_columns<B>(operands.b, operands.columns, own);
  if (own.is_narrow) return multiply_panels<A, B, Float8>(operands, own);
  multiply_panels<A, B, Double8>(operands, own);
}

MultiplyWgmma arithmetic_of(sim::OperandFormat a, sim::OperandFormat b) {
  using sim::OperandFormat;
  if (a == OperandFormat::kBf16) return &multiply<WgmmaBf16, WgmmaBf16>;
  if (a == OperandFormat::kE4m3) {
    return b == OperandFormat::kE4m3 ? &multiply<WgmmaE4m3, WgmmaE4m3>
                                     : &multiply<WgmmaE4m3, WgmmaE5m2>;
  }
  return b == OperandFormat::kE4m3 ? &multiply<WgmmaE5m2, WgmmaE4m3>
                                   : &multiply<WgmmaE5m2, WgmmaE5m2>;
}

}  // namespace
}  // namespace moejit::runtime
