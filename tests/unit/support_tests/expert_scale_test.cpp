// SPDX-License-Identifier: Apache-2.0
// The reference's scales of experts, by figures of the field and by hand.
#include "runtime/reference/scales.h"
#include "tests/unit/support_tests/special_floats.h"

#include <gtest/gtest.h>
#include <vector>

namespace moejit::reference {
namespace {

TEST(ExpertScale, IsTheRoundedQuotient) {
  struct Case {
    float amax;
    std::uint32_t scale, scale_inv;
  };
  for (const auto& [amax, scale, scale_inv] :
       {Case{1.0F, 0x43e00000, 0x3b124925}, Case{447.0F, 0x3f80494e, 0x3f7f6db8},
        Case{448.0F, 0x3f800000, 0x3f800000}, Case{449.0F, 0x3f7f6e0a, 0x3f804925},
        Case{57344.0F, 0x3c000000, 0x43000000}}) {
    const ExpertScale got = expert_scale(amax, Fp8Format::kE4m3);
    EXPECT_EQ(bits_of(got.scale), scale) << amax;
    EXPECT_EQ(bits_of(got.scale_inv), scale_inv) << amax;
  }
  EXPECT_EQ(expert_scale(57344.0F, Fp8Format::kE5m2).scale, 1.0F);
  EXPECT_EQ(expert_scale(7.0F, Fp8Format::kE5m2).scale, 8192.0F);
}

TEST(ExpertScale, IsOneWithoutAFiniteMagnitude) {
  for (const float amax : {0.0F, kInf, kNan}) {
    EXPECT_EQ(expert_scale(amax, Fp8Format::kE4m3).scale, 1.0F) << amax;
    EXPECT_EQ(expert_scale(amax, Fp8Format::kE5m2, true).scale_inv, 1.0F) << amax;
  }
}

TEST(ExpertScale, EndsAtTheLargestFiniteNumber) {
  const ExpertScale got = expert_scale(1e-38F, Fp8Format::kE4m3);
  EXPECT_EQ(bits_of(got.scale), 0x7f7fffffU);
  EXPECT_EQ(bits_of(got.scale_inv), 0x00200000U);
  EXPECT_EQ(expert_scale(1e-38F, Fp8Format::kE4m3, true).scale, 0x1p127F);
}

TEST(ExpertScale, IsRoundedDownToAPowerOfTwoOnRequest) {
  EXPECT_EQ(expert_scale(447.0F, Fp8Format::kE4m3, true).scale, 1.0F);
  EXPECT_EQ(expert_scale(449.0F, Fp8Format::kE4m3, true).scale, 0.5F);
  EXPECT_EQ(expert_scale(1.0F, Fp8Format::kE4m3, true).scale, 256.0F);
}

TEST(ExpertScale, PassesOverNanInMagnitudes) {
  const std::vector<std::uint16_t> values = {0x7fc0, 0xc000, 0x8000, 0x3f80, 0xffc0};
  EXPECT_EQ(amax_of_bf16(values), 2.0F);
  EXPECT_EQ(amax_of_bf16(std::vector<std::uint16_t>{0x7fc0}), 0.0F);
  EXPECT_EQ(amax_of_bf16({}), 0.0F);
}

TEST(ExpertScale, CastsProductsThatAreRoundedTwice) {
  const std::vector<std::uint16_t> values = {0x0000, 0x8000, 0x4040, 0xc040, 0x7f80, 0x7fc0};
  EXPECT_EQ(cast_bf16(values, 448.0F / 3.0F, Fp8Format::kE4m3),
            (std::vector<std::uint8_t>{0x00, 0x80, 0x7e, 0xfe, 0x7e, 0x7f}));
  EXPECT_EQ(cast_bf16(values, 57344.0F / 3.0F, Fp8Format::kE5m2),
            (std::vector<std::uint8_t>{0x00, 0x80, 0x7b, 0xfb, 0x7b, 0x7f}));
}

}  // namespace
}  // namespace moejit::reference
