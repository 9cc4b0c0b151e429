// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/activation.h"
#include "runtime/reference/gemm.h"
#include "runtime/reference/quantize.h"
#include "runtime/reference/route.h"
#include "tests/support/layer_inputs.h"

#include <cstdint>
#include <span>
#include <vector>

// A plain CPU implementation of the forward pass of an `fp8_flow` layer: one loop per operation. It
// is written from the numeric contract and shares nothing with the kernels. Compile it without
// contraction of floating-point expressions.

namespace moejit::reference {

// Every tensor of the forward pass under its usual name. Permuted tensors have offs[E] rows.
struct ReferenceForward {
  std::vector<std::uint8_t> x_q;          // [T, H]
  std::vector<float> x_scale_inv;         // [T, ceil(H/128)]
  std::vector<std::int32_t> counts;       // [E]
  std::vector<std::int32_t> offs;         // [E + 1]
  std::vector<std::int32_t> row_map;      // [T, K]
  std::uint32_t status = 0;               // kBadExpertId, kRowOverflow
  std::vector<std::uint8_t> permuted_q;   // [offs[E], H]
  std::vector<float> permuted_scale_inv;  // [offs[E], ceil(H/128)]
  std::vector<float> permuted_probs;      // [offs[E]]
  std::vector<std::uint8_t> w1_q;         // [E, 2I, H]
  std::vector<float> w1_scale_inv;        // [E, 2*ceil(I/128), ceil(H/128)]
  std::vector<std::uint8_t> w2_q;         // [E, H, I]
  std::vector<float> w2_scale_inv;        // [E, ceil(H/128), ceil(I/128)]
  std::vector<std::uint16_t> h1;          // bf16 [offs[E], 2I]
  std::vector<std::uint8_t> act_q;        // [offs[E], I]
  std::vector<float> act_scale_inv;       // [offs[E], ceil(I/128)]
  std::vector<std::uint16_t> h2;          // bf16 [offs[E], H], pad rows 0
  std::vector<std::uint16_t> y;           // bf16 [T, H]
};

// Computes the forward pass. The sizes of `inputs` must match `shape`.
ReferenceForward reference_forward(const LayerShape& shape, const LayerInputs& inputs);

// Computes the same layer without any quantization or intermediate rounding, in fp64 from the bf16
// inputs: [T, H]. Anything that the route drops (for lack of rows, bad ids) is dropped here too.
std::vector<double> unquantized_forward(const LayerShape& shape, const LayerInputs& inputs);

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
