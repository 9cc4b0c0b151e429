// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/scales.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

void expect_power_of_two(float amax, float eps, float scale, float scale_inv) {
  const BlockScale got = scale_from_amax(amax, {.eps = eps});
  EXPECT_EQ(bits_of(got.scale), bits_of(scale)) << "amax " << amax;
  EXPECT_EQ(bits_of(got.scale_inv), bits_of(scale_inv)) << "amax " << amax;
}

void expect_fp32(float amax, float eps, std::uint32_t scale, std::uint32_t scale_inv) {
  const BlockScale got = scale_from_amax(amax, {.eps = eps, .is_power_of_two = false});
  EXPECT_EQ(bits_of(got.scale), scale) << "amax " << amax;
  EXPECT_EQ(bits_of(got.scale_inv), scale_inv) << "amax " << amax;
}

TEST(ScaleFromAmax, MatchesTheTableForPowersOfTwo) {
  expect_power_of_two(0.0F, 0.0F, 1.0F, 1.0F);
  expect_power_of_two(0.0F, 1e-10F, 0x1p42F, 0x1p-42F);
  expect_power_of_two(1e-38F, 0.0F, 0x1p127F, 0x1p-127F);
  expect_power_of_two(1.0F, 0.0F, 256.0F, 0x1p-8F);
  expect_power_of_two(447.0F, 0.0F, 1.0F, 1.0F);
  expect_power_of_two(448.0F, 0.0F, 1.0F, 1.0F);
  expect_power_of_two(449.0F, 0.0F, 0.5F, 2.0F);
  expect_power_of_two(57344.0F, 0.0F, 0x1p-7F, 0x1p7F);
  expect_power_of_two(kInf, 0.0F, 1.0F, 1.0F);
}

TEST(ScaleFromAmax, MatchesTheTableForFp32Scales) {
  expect_fp32(0.0F, 0.0F, 0x3F800000, 0x3F800000);
  expect_fp32(0.0F, 1e-10F, 0x5482629A, 0x2A7B5123);
  expect_fp32(1e-38F, 0.0F, 0x7F7F0000, 0x00202020);
  expect_fp32(1.0F, 0.0F, 0x43E00000, 0x3B124925);
  expect_fp32(447.0F, 0.0F, 0x3F80494E, 0x3F7F6DB8);
  expect_fp32(448.0F, 0.0F, 0x3F800000, 0x3F800000);
  expect_fp32(449.0F, 0.0F, 0x3F7F6E0A, 0x3F804925);
  expect_fp32(57344.0F, 0.0F, 0x3C000000, 0x43000000);
}

TEST(ScaleFromAmax, FormulaEqualsTheClosedFormForEveryMantissa) {
  for (const std::uint32_t exponent : {127U, 134U, 135U, 100U, 254U}) {
    for (std::uint32_t mantissa = 0; mantissa < (1U << 23); ++mantissa) {
      const float amax = float_of_bits(exponent << 23 | mantissa);
      const float formula = scale_from_amax(amax, {}).scale_inv;
      ASSERT_EQ(bits_of(formula), bits_of(power_of_two_scale_inv(amax, kE4m3Max))) << amax;
    }
  }
}

TEST(ScaleFromAmax, StepsExactlyAt448TimesAPowerOfTwo) {
  for (int k = -60; k <= 60; ++k) {
    const float amax = std::ldexp(448.0F, k);
    const float above = std::nextafter(amax, kInf);
    const float below = std::nextafter(amax, 0.0F);
    EXPECT_EQ(scale_from_amax(amax, {}).scale_inv, std::ldexp(1.0F, k));
    EXPECT_EQ(scale_from_amax(below, {}).scale_inv, std::ldexp(1.0F, k));
    EXPECT_EQ(scale_from_amax(above, {}).scale_inv, std::ldexp(1.0F, k + 1));
  }
}

TEST(ScaleFromAmax, HoldsForE5m2) {
  EXPECT_EQ(scale_from_amax(57344.0F, {.fp8_max = kE5m2Max}).scale_inv, 1.0F);
  EXPECT_EQ(scale_from_amax(57345.0F, {.fp8_max = kE5m2Max}).scale_inv, 2.0F);
}

}  // namespace
}  // namespace moejit::reference
