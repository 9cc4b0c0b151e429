// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

// The functions of fp32 that docs/router.md defines, rounding by rounding.
namespace moejit::reference {

// Returns e^x for x <= 0; 0 below -87, NaN for NaN. Off by at most one unit in the last place.
float router_exp(float x);

// Returns log((1 + q) / (1 - q)) for |q| <= 1/3.
float ratio_log(float q);

float router_tanh(float x);
float router_sigmoid(float z);
float router_sqrt_softplus(float z);

// Returns the sum of values of experts: 32 partial sums of so many neighbors each, then a tree.
float sum_experts(std::span<const float> values, std::int64_t neighbors);

// Returns the sum of values of at most 32 choices: the tree alone.
float sum_choices(std::span<const float> values);

// The parts of a softmax: the largest value but NaN, and the sum of e^(z - largest).
struct SoftmaxParts {
  float largest = 0.0F;
  float sum = 0.0F;
};

// Returns the parts of a softmax over experts, and writes each e^(z - largest) to `powers`. For
// choices `neighbors` is 1.
SoftmaxParts softmax_parts(std::span<const float> z, std::int64_t neighbors,
                           std::span<float> powers);

// Returns the logarithm of the sum of e^z, from the parts.
float log_sum_exp(const SoftmaxParts& parts);

}  // namespace moejit::reference
