// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <moejit_sm80/ptx/convert.cuh>

namespace moejit {
namespace {

using device::ptx::e4m3_pair;
using device::ptx::e5m2_pair;

// Both formats drop 20 bits of a float or more, so its low 16 bits matter only as zero or not: with
// these, all upper halves decide as all floats do.
constexpr uint32_t kLowBits[] = {0, 1, 0x8000, 0xffff};

TEST(Sm80Conversions, HaveTheBytesOfTheReference) {
  int64_t wrong = 0;
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t low : kLowBits) {
      const float value = std::bit_cast<float>(upper << 16 | low);
      // A NaN has no sign in the instruction's result.
      const uint8_t e4m3 = std::isnan(value) ? 0x7f : reference::encode_e4m3(value);
      const uint8_t e5m2 = std::isnan(value) ? 0x7f : reference::encode_e5m2(value);
      wrong += e4m3_pair(value, 1.0f) != (0x38 << 8 | e4m3);
      wrong += e5m2_pair(1.0f, value) != (e5m2 << 8 | 0x3c);
    }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moejit
