// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

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

}  // namespace moejit::reference
