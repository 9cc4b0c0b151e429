// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/packed_format.h"
#include "runtime/reference/packed_bf16_weights.h"

#include <optional>

namespace moejit::checkpoint {

// Returns what the reference calls a format of packed weights beside rows in bf16. Returns none for
// weights beside FP8 rows, and for weights that are not packed.
constexpr std::optional<reference::FourBitFormat> four_bit_format(compiler::PackedFormat format) {
  switch (format) {
    case compiler::PackedFormat::kNvfp4: return reference::FourBitFormat::kNvfp4;
    case compiler::PackedFormat::kInt4: return reference::FourBitFormat::kInt4;
    case compiler::PackedFormat::kNone:
    case compiler::PackedFormat::kMxfp4: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace moejit::checkpoint
