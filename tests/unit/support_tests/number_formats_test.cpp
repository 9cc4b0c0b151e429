// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"

#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace moejit::reference {
namespace {

float next_up(float value) { return std::nextafter(value, kInf); }
float next_down(float value) { return std::nextafter(value, -kInf); }

struct Sample {
  float value;
  std::uint8_t code;
};

void expect_codes(const std::vector<Sample>& samples, Fp8Format format) {
  for (const Sample& sample : samples) {
    EXPECT_EQ(int{encode_fp8(sample.value, format)}, int{sample.code}) << sample.value;
  }
}

TEST(Bf16, TiesGoToTheEvenMantissa) {
  EXPECT_EQ(bf16_from_float(float_of_bits(0x3F808000)), 0x3F80);
  EXPECT_EQ(bf16_from_float(float_of_bits(0x3F818000)), 0x3F82);
  EXPECT_EQ(bf16_from_float(float_of_bits(0x3F808001)), 0x3F81);
  EXPECT_EQ(bf16_from_float(float_of_bits(0x3F807FFF)), 0x3F80);
}

TEST(Bf16, OverflowCarriesIntoInfAndSignsSurvive) {
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bf16_from_float(-kInf), 0xFF80);
  EXPECT_EQ(bf16_from_float(-0.0F), 0x8000);
  EXPECT_EQ(bf16_from_float(kBf16Max), 0x7F7F);
}

TEST(Bf16, NanStaysQuietEvenWhereItsPayloadIsCutOff) {
  EXPECT_EQ(bf16_from_float(float_of_bits(0x7F800001)), 0x7FC0);
  EXPECT_EQ(bf16_from_float(float_of_bits(0xFFFFFFFF)), 0xFFFF);
}

TEST(Bf16, EveryFiniteCodeSurvivesARoundTrip) {
  for (std::uint32_t code = 0; code <= 0xFFFF; ++code) {
    const float value = float_from_bf16(static_cast<std::uint16_t>(code));
    if (std::isnan(value)) continue;
    ASSERT_EQ(bf16_from_float(value), code);
  }
}

TEST(E4m3, SaturatesAndCanonicalisesNan) {
  expect_codes({{kNan, 0x7F},
                {-kNan, 0x7F},
                {kInf, 0x7E},
                {-kInf, 0xFE},
                {448.0F, 0x7E},
                {464.0F, 0x7E},
                {465.0F, 0x7E},
                {-1e30F, 0xFE},
                {0.0F, 0x00},
                {-0.0F, 0x80},
                {-1e-30F, 0x80},
                {-0x1p-149F, 0x80},
                {std::numeric_limits<float>::denorm_min(), 0x00}},
               Fp8Format::kE4m3);
}

TEST(E4m3, TiesGoToTheEvenCode) {
  expect_codes({{0x1p-10F, 0x00},
                {next_up(0x1p-10F), 0x01},
                {1.5F * 0x1p-9F, 0x02},
                {next_down(1.5F * 0x1p-9F), 0x01},
                {2.5F * 0x1p-9F, 0x02},
                {7.5F * 0x1p-9F, 0x08},  // the carry leads into the normal numbers
                {1.0625F, 0x38},         // between 1 and 1.125
                {1.1875F, 0x3A},         // between 1.125 and 1.25
                {next_up(1.0625F), 0x39},
                {1.9375F, 0x40}},  // carries into the next power of two
               Fp8Format::kE4m3);
}

TEST(E5m2, SaturatesAndRoundsToTheEvenCode) {
  expect_codes({{kNan, 0x7F},
                {-kNan, 0x7F},
                {kInf, 0x7B},
                {-kInf, 0xFB},
                {57344.0F, 0x7B},
                {65536.0F, 0x7B},
                {-0.0F, 0x80},
                {0x1p-17F, 0x00},
                {next_up(0x1p-17F), 0x01},
                {1.5F * 0x1p-16F, 0x02},
                {3.5F * 0x1p-16F, 0x04},
                {1.125F, 0x3C},
                {1.375F, 0x3E}},
               Fp8Format::kE5m2);
}

TEST(Fp8, DecodesTheLandmarksOfBothFormats) {
  EXPECT_EQ(decode_e4m3(0x01), 0x1p-9F);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6F);
  EXPECT_EQ(decode_e4m3(0x38), 1.0F);
  EXPECT_EQ(decode_e4m3(0xFE), -448.0F);
  EXPECT_TRUE(std::isnan(decode_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(decode_e4m3(0xFF)));
  EXPECT_TRUE(std::signbit(decode_e4m3(0x80)));
  EXPECT_EQ(decode_e5m2(0x01), 0x1p-16F);
  EXPECT_EQ(decode_e5m2(0x04), 0x1p-14F);
  EXPECT_EQ(decode_e5m2(0x7B), 57344.0F);
  EXPECT_EQ(decode_e5m2(0xFC), -kInf);
  EXPECT_TRUE(std::isnan(decode_e5m2(0x7D)));
}

// Exhaustive over the neighbourhood of every boundary: the midpoint of two neighbouring codes goes
// to the even one, its fp32 neighbours to the nearer one.
void expect_nearest_everywhere(Fp8Format format, int largest_code) {
  for (int code = 0; code < largest_code; ++code) {
    const float low = decode_fp8(static_cast<std::uint8_t>(code), format);
    const float high = decode_fp8(static_cast<std::uint8_t>(code + 1), format);
    const float middle = (low + high) / 2.0F;
    ASSERT_LT(low, high);
    EXPECT_EQ(encode_fp8(low, format), code);
    EXPECT_EQ(encode_fp8(middle, format), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(encode_fp8(next_down(middle), format), code);
    EXPECT_EQ(encode_fp8(next_up(middle), format), code + 1);
    EXPECT_EQ(encode_fp8(-next_up(middle), format), (code + 1) | 0x80);
  }
}

TEST(E4m3, EveryValueGoesToTheNearestCode) { expect_nearest_everywhere(Fp8Format::kE4m3, 0x7E); }

TEST(E5m2, EveryValueGoesToTheNearestCode) { expect_nearest_everywhere(Fp8Format::kE5m2, 0x7B); }

}  // namespace
}  // namespace moejit::reference
