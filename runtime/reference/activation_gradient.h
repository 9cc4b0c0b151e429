// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gated_activation.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// The gradients of y = activation(gate, up) * prob, where B = block_count(I).
struct ActivationGradients {
  std::vector<float> gate;            // [rows, I], or empty without a gate
  std::vector<float> up;              // [rows, I]
  std::vector<double> dprobs_blocks;  // [rows, B]: the sum over each block of activation * gradient
  std::vector<double> dprobs_bounds;  // [rows, B]: how far a kernel's sum may be from it
};

// Returns the gradients. h1: bf16 [rows, 2I], gate in the first half; dact: bf16 [rows, I], the
// gradient of y; probs: [rows]. For swiglu, let s be the sigmoid of the gate, computed in double
// and rounded once to fp32, and d = dact * s, u = d * gate. Then they are
//   for gate (u * (1 - s) + d) * up * prob      for up u * prob
// in double with one rounding to fp32. Other activations have their own formulas; without a gate,
// h1 is [rows, I]. Sums are in double throughout; their bound is derived in the source and holds
// for finite inputs.
ActivationGradients activation_backward(std::span<const std::uint16_t> h1,
                                        std::span<const std::uint16_t> dact,
                                        std::span<const float> probs, std::int64_t rows,
                                        std::int64_t intermediate,
                                        const GatedActivation& activation = swiglu_activation());

// Makes the pad rows of the route 0 in everything.
void clear_pad_rows(ActivationGradients& gradients, const Route& route, std::int64_t intermediate);

// The gradients of activation_backward(), quantized: gate and up each by their own blocks as in
// quantize_activation(). Pad rows of the route are 0 in everything.
struct QuantizedActivationGradients {
  std::vector<std::uint8_t> q;        // E4M3 [offs[E], 2I], or without a gate [offs[E], I]
  std::vector<float> scale_inv;       // [offs[E], 2B], gate's first, or [offs[E], B]
  std::vector<double> dprobs_blocks;  // [offs[E], B]
  std::vector<double> dprobs_bounds;  // [offs[E], B]
};
QuantizedActivationGradients activation_backward_quantize(
    std::span<const std::uint16_t> h1, std::span<const std::uint16_t> dact,
    std::span<const float> probs, const Route& route, std::int64_t intermediate,
    std::int64_t sharing = 1, const GatedActivation& activation = swiglu_activation());

}  // namespace moejit::reference
