// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gated_activation.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// Returns swiglu of h1, fp32 [rows, I]: y = ((gate * sigmoid(gate)) * up) * prob. Every operation
// is rounded to fp32, nothing is fused; the sigmoid is computed in double and rounded once. h1:
// bf16 [rows, 2I], gate in the first half, up in the second; probs: [rows].
std::vector<float> swiglu(std::span<const std::uint16_t> h1, std::span<const float> probs,
                          std::int64_t rows, std::int64_t intermediate);

// Returns any activation of h1, fp32 [rows, I]: its fp32_value, times prob rounded to fp32. h1 and
// probs are as for swiglu(); without a gate, h1 is [rows, I].
std::vector<float> activate(std::span<const std::uint16_t> h1, std::span<const float> probs,
                            std::int64_t rows, std::int64_t intermediate,
                            const GatedActivation& activation);

// Quantizes fp32 values [rows, cols], rows = offs[E], by 1x128 blocks. The amax is at least 1e-10,
// scale_inv = 2^ceil(log2(amax / 448)), q = cast(y / scale_inv). An infinite amax gives scale 1 and
// saturates. Pad rows of the route are q 0 and scale 0. Each `sharing` consecutive blocks get the
// scale of their common amax, as in quantize_1x128().
QuantizedRows quantize_activation(std::span<const float> values, const Route& route,
                                  std::int64_t cols, std::int64_t sharing = 1);

// Computes the activation, swiglu by default, and quantizes it. A kernel's sigmoid differs from
// this one by at most 2^-17. So its codes may differ by one, and a scale by a factor of two if
// is_near_scale_step(amax).
QuantizedRows activation_quantize(std::span<const std::uint16_t> h1, std::span<const float> probs,
                                  const Route& route, std::int64_t intermediate,
                                  std::int64_t sharing = 1,
                                  const GatedActivation& activation = swiglu_activation());

// Returns whether amax is within 2^-20, relatively, of 448 * 2^k.
bool is_near_scale_step(float amax);

}  // namespace moejit::reference
