// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace moejit::compiler {

// The calls that run an operation.
enum class Phase {
  kWeights,  // once after the weights changed
  kForward,
  kBackward,
  kForwardScales,   // once a step, after the forward passes; for recipes with an amax history
  kBackwardScales,  // once a step, after the backward passes; for the same recipes
};
inline constexpr std::size_t kPhaseCount = 5;

// Returns whether calls of this phase only compute the scales of the next step.
constexpr bool is_of_scales(Phase phase) {
  return phase == Phase::kForwardScales || phase == Phase::kBackwardScales;
}

// The parts of the backward pass of layers with backward_halves, or with backward_linears, in this
// order. The data half computes dx and dprobs, the weights half the gradients of weights and
// biases. The part of fc1 computes dw1 and db1, the part of fc2 all others.
enum class BackwardHalf { kData, kWeights, kFc2, kFc1 };
// Returns whether a part follows another one, which defers tensors to it.
constexpr bool is_second(std::optional<BackwardHalf> half) {
  return half == BackwardHalf::kWeights || half == BackwardHalf::kFc1;
}

// The two calls of a pass, in this order, for layers with dispatch_calls. Between them the host
// moves the rows that kQuantize wrote to the ranks of their experts. There kExperts reads them.
enum class DispatchCall { kQuantize, kExperts };

// What a backward call does with the gradients of weights and biases.
enum class GradientMode { kOverwrite, kAdd };

std::string_view to_string(Phase phase);
std::string_view to_string(BackwardHalf half);
std::string_view to_string(DispatchCall call);
std::string_view to_string(GradientMode mode);

}  // namespace moejit::compiler
