// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace moejit::reference {

// A layer's inputs, row-major. Experts' weights are bf16 or, if the optionals are set, already
// quantized.
struct LayerInputs {
  std::int64_t tokens = 0;             // T
  std::vector<std::uint16_t> x;        // bf16 [T, H]
  std::vector<std::int32_t> topk_ids;  // [T, K], -1: not routed here
  std::vector<float> topk_probs;       // [T, K]
  std::vector<std::uint16_t> w1;       // bf16 [E, 2I, H], gate rows first, then up; [E, I, H]
  std::vector<std::uint16_t> w2;       // bf16 [E, H, I]
  std::vector<std::uint16_t> b1;       // bf16 [E, 2I] or [E, I], as the rows of w1; may be empty
  std::vector<std::uint16_t> b2;       // bf16 [E, H]; may be empty
  std::optional<QuantizedWeights> w1_quantized;
  std::optional<QuantizedWeights> w2_quantized;
};

// Returns a layer's inputs, without biases, from the functions above. Ignores shape.max_rows.
LayerInputs random_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                          const RoutingOptions& options = {});

// Returns inputs for which every product, partial sum and activation is exact. So a kernel's y and
// all intermediates equal the reference bit for bit whatever its accumulator. For this x holds
// integers up to 2, except 16 in column 0. Gate weights pick only column 0, so that the gate is 128
// or 256 and its sigmoid 1. The up weights are -1, 0, 1, at most eight of them per row not 0 and
// none in column 0. Probabilities are 2^-7, and w2 holds -1, 0, 1. Then |y| before quantization is
// an integer up to 32. A partial sum of 128 products is at most 4096, below the 2^13 that even a
// 14-bit accumulator holds.
LayerInputs exact_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                         const RoutingOptions& options = {});

// The number of kinds of special blocks.
inline constexpr std::int64_t kSpecialBlocks = 14;
// Returns bf16 [tokens, hidden]: random activations in which blocks of 128 columns take turns at
// being special. They are NaN among numbers, only NaN, Inf, -Inf, -0, subnormals, the largest bf16,
// all zero, or all 2^-40. Or their amax is 448 * 2^k or a bf16 neighbor of it. kSpecialBlocks rows
// show each kind.
std::vector<std::uint16_t> special_activations(std::int64_t tokens, std::int64_t hidden,
                                               std::uint64_t seed);

}  // namespace moejit::reference
