// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/layer_results.h"
#include "runtime/reference/gemm.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::cli {

// What is added to the result of a GEMM: a bias of each expert, times the rows' probabilities if
// there are any.
struct Bias {
  std::vector<uint16_t> values;  // bf16 [E, columns of the result], in their order; empty: none
  std::span<const float> probs;  // of the permuted rows; empty: 1
};

// Return the bias of fc1, b1 in the order of h1's columns, and that of fc2, b2 with the
// probabilities of `results`.
Bias bias_of_fc1(const LayerResults& results, const compiler::Layer& layer,
                 const TensorMap& inputs);
Bias bias_of_fc2(const LayerResults& results, const compiler::Layer& layer,
                 const TensorMap& inputs);

// Adds a bias to what a GEMM gives for the rows of a route, of which `source_rows` are the permuted
// ones. A bound grows by the rounding of product and sum to fp32 and of the bias to bf16.
void add_bias(const Bias& bias, const reference::Route& route, std::span<const int64_t> source_rows,
              int64_t columns, reference::GemmExact& exact);

// Compares those of db1, db2 and bias_dprobs that there are with the CPU reference, within the
// bounds of their trees. It takes the rows of gradients from the results, dequantised.
std::vector<TensorCheck> check_bias_gradients(const LayerResults& results,
                                              const compiler::Layer& layer,
                                              const TensorMap& inputs);

}  // namespace moejit::cli
