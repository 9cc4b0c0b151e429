// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/gated_activation.h"
#include "runtime/reference/layer_shape.h"
#include "runtime/reference/route.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// The gradients of a layer without any quantization or intermediate rounding, in fp64 from the bf16
// inputs and the gradient dy of y. Only the sigmoid in gradients of swiglu is rounded. Anything
// that the route drops is dropped here too.
struct UnquantizedGradients {
  std::vector<double> dx;      // [T, H]
  std::vector<double> dprobs;  // [T, K], 0 where nothing is routed
  std::vector<double> dw1;     // [E, 2I, H], or without a gate [E, I, H]
  std::vector<double> dw2;     // [E, H, I]
  std::vector<double> db1;     // [E, 2I], or without a gate [E, I]
  std::vector<double> db2;     // [E, H]
};

UnquantizedGradients unquantized_backward(const LayerShape& shape, const LayerInputs& inputs,
                                          std::span<const std::uint16_t> dy,
                                          const GatedActivation& activation = swiglu_activation());

}  // namespace moejit::reference
