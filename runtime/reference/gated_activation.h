// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace moejit::reference {

// What makes one value of gate and up, in double, from formulas written for this file. Parameters
// of formulas are numbers of fp32, as kernels have them. Defaults are the functions of swiglu.
struct GatedActivation {
  // Of gate and up.
  std::function<double(double gate, double up)> value;
  // The same with the roundings of a kernel, but for those inside the sigmoid or erfc.
  std::function<float(float gate, float up)> fp32_value;
  // From `gradient`, that of the value.
  std::function<double(double gate, double up, double gradient)> gate_gradient;
  std::function<double(double gate, double up, double gradient)> up_gradient;
  // How far a kernel's value may be from the exact one where nothing is subnormal, with one more
  // product rounded; the source derives it.
  std::function<double(double gate, double up)> value_error;
  // Otherwise rows have no gate half, functions do not look at it, and it has no gradient.
  bool has_gate = true;
};

// gate * sigmoid(gate) * up
GatedActivation swiglu_activation();

// With c = min(gate, limit): c * sigmoid(alpha * c) * (clamp(up, -limit, limit) + offset). At the
// limits gradients pass; a NaN stays one.
GatedActivation clamped_swiglu_activation(float limit = 7.0F, float alpha = 1.702F,
                                          float offset = 1.0F);

// gate * (1 + erf(gate / sqrt(2))) / 2 * up
GatedActivation geglu_activation();

// gate * sigmoid(1.702 * gate) * up
GatedActivation quick_geglu_activation();

// relu(up)^2, without a gate
GatedActivation relu_squared_activation();

}  // namespace moejit::reference
