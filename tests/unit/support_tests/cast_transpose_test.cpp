// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/casts.h"
#include "tests/unit/support_tests/special_floats.h"

#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

// 0.5 * {1, -2, 1000; 0, -0, 3} = {0.5, -1, 500; 0, -0, 1.5}
TEST(ReferenceCastTranspose, HasTheSameBytesInBothOrientations) {
  const std::vector<float> values = {1.0F, -2.0F, 1000.0F, 0.0F, -0.0F, 3.0F};
  const CastTransposed got = cast_transpose(values, 2, 3, 0.5F, Fp8Format::kE4m3);
  EXPECT_EQ(got.bytes, (std::vector<std::uint8_t>{0x30, 0xB8, 0x7E, 0x00, 0x80, 0x3C}));
  EXPECT_EQ(got.colwise, (std::vector<std::uint8_t>{0x30, 0x00, 0xB8, 0x80, 0x7E, 0x3C}));
  EXPECT_EQ(got.amax, 1000.0F);
  EXPECT_EQ(got.scale_inv, 2.0F);
}

// The exact product lies 2^-23 above 17, halfway between the codes 16 and 18; as an fp32 number it
// is 17, which goes to the even code.
TEST(ReferenceCastTranspose, RoundsTheProductBeforeTheCast) {
  const float scale = 0x1.000002p0F;
  const float value = 0x1.0ffffep4F;
  const CastTransposed got =
      cast_transpose(std::vector<float>{value}, 1, 1, scale, Fp8Format::kE4m3);
  EXPECT_EQ(scale * value, 17.0F);
  EXPECT_EQ(decode_e4m3(got.bytes[0]), 16.0F);
}

TEST(ReferenceCastTranspose, KeepsNanOutOfTheLargestMagnitude) {
  const auto amax = [](const std::vector<float>& values) {
    return cast_transpose(values, 1, static_cast<std::int64_t>(values.size()), 1.0F,
                          Fp8Format::kE5m2)
        .amax;
  };
  EXPECT_EQ(amax({kNan, -2.0F, 1.0F}), 2.0F);
  EXPECT_EQ(amax({kNan}), 0.0F);
  EXPECT_EQ(amax({3.0F, -kInf}), kInf);
  EXPECT_EQ(amax({}), 0.0F);
}

TEST(ReferenceCastTranspose, SaturatesAndKeepsNan) {
  const std::vector<float> values = {kInf, -1e30F, -kNan, 0x1p-17F, 0x1.8p-17F};
  EXPECT_EQ(cast_transpose(values, 1, 5, 1.0F, Fp8Format::kE5m2).bytes,
            (std::vector<std::uint8_t>{0x7B, 0xFB, 0x7F, 0x00, 0x01}));
}

}  // namespace
}  // namespace moejit::reference
