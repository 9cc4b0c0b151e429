// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace moejit::checkpoint {

// Replaces `w1_q`, `w1_scale_inv`, `w2_q` and `w2_scale_inv` by BF16 `w1` and `w2`. Each code is
// multiplied by the scale of its 128x128 block and rounded once. Blocks of `w1` restart at the up
// half.
void dequantize_weights(const compiler::Layer& layer, runtime::TensorMap& tensors);

inline constexpr int64_t kMxfp4Block = 32;       // elements that share a scale
inline constexpr int64_t kMxfp4BlockBytes = 16;  // two elements a byte, the first in the lower half

// Decodes MXFP4 to bf16 (OCP Microscaling Formats, version 1.0): E2M1 numbers in blocks of 32, each
// times 2^(scale - 127). For each of the `scales`, `codes` has 16 bytes and `values` 32 numbers.
// Results are exact, since bf16 has more bits than E2M1, and the exponents of fp32. Exceptions are
// blocks whose scale is 255, which means NaN, or so large that a number of the block is beyond
// bf16. Returns the first such block, if any.
std::optional<std::size_t> decode_mxfp4(std::span<const std::uint8_t> codes,
                                        std::span<const std::uint8_t> scales,
                                        std::span<std::uint16_t> values);

}  // namespace moejit::checkpoint
