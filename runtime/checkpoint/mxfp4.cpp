// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/mxfp4.h"

#include "runtime/reference/number_formats.h"

#include <array>
#include <cmath>

namespace moejit::checkpoint {
namespace {

constexpr uint8_t kNanScale = 255;
constexpr int kScaleBias = 127;
constexpr std::array<float, 16> kValues = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

}  // namespace

std::optional<std::size_t> decode_mxfp4(std::span<const std::uint8_t> codes,
                                        std::span<const std::uint8_t> scales,
                                        std::span<std::uint16_t> values) {
  for (std::size_t block = 0; block < scales.size(); ++block) {
    if (scales[block] == kNanScale) return block;
    std::array<uint16_t, kValues.size()> decoded;
    for (std::size_t code = 0; code < kValues.size(); ++code)
      decoded[code] = reference::bf16_from_float(
          std::ldexp(kValues[code], static_cast<int>(scales[block]) - kScaleBias));
    for (std::size_t i = 0; i < kMxfp4Block; ++i) {
      const uint8_t byte = codes[block * kMxfp4BlockBytes + i / 2];
      const uint16_t value = decoded[i % 2 == 0 ? byte & 0xF : byte >> 4];
      if (!std::isfinite(reference::float_from_bf16(value))) return block;
      values[block * kMxfp4Block + i] = value;
    }
  }
  return std::nullopt;
}

}  // namespace moejit::checkpoint
