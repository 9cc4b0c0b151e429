// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace moejit::reference {

// The functions of an activation that makes one value of gate and up, in double, from formulas
// written for this file. Parameters of formulas are numbers of fp32, as kernels have them.
struct GatedActivation {
  // The activation's value.
  std::function<double(double gate, double up)> value;
  // The value in fp32: for swiglu with the roundings of a kernel except those inside the sigmoid,
  // for other activations rounded once.
  std::function<float(float gate, float up)> fp32_value;
  // The gradients of gate and up, from `gradient`, which is the gradient of the value.
  std::function<double(double gate, double up, double gradient)> gate_gradient;
  std::function<double(double gate, double up, double gradient)> up_gradient;
  // How far a kernel's value may be from the exact one if nothing is subnormal, with one more
  // product rounded; the source derives it.
  std::function<double(double gate, double up)> value_error;
  // How far a kernel's derivatives may be from the exact ones. Where rounding decides which branch
  // of a choice is taken, the other branch is within the bound. Empty: there are no such choices.
  std::function<double(double gate, double up)> gate_slope_error = {};
  std::function<double(double gate, double up)> up_slope_error = {};
  // Whether rows have a gate half. If not, functions ignore `gate`, and it has no gradient.
  bool has_gate = true;
};

// Returns gate * sigmoid(gate) * up.
GatedActivation swiglu_activation();

// Returns c * sigmoid(alpha * c) * (clamp(up, -limit, limit) + offset), with c = min(gate, limit).
// Gradients pass at the limits; a NaN stays one.
GatedActivation clamped_swiglu_activation(float limit = 7.0F, float alpha = 1.702F,
                                          float offset = 1.0F);

// Returns gate * (1 + erf(gate / sqrt(2))) / 2 * up.
GatedActivation geglu_activation();

// Returns gate * sigmoid(1.702 * gate) * up.
GatedActivation quick_geglu_activation();

// Returns relu(up)^2, without a gate.
GatedActivation relu_squared_activation();

// Returns an activation of h1, fp32 [rows, I]: its fp32_value, times prob rounded to fp32. For
// swiglu that is ((gate * sigmoid(gate)) * up) * prob. Every operation is rounded to fp32, nothing
// is fused; the sigmoid is computed in double and rounded once. h1: bf16 [rows, 2I], gate in the
// first half, up in the second, or without a gate [rows, I]; probs: [rows].
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
