// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/call.h"

#include <array>
#include <cstddef>

// The state tensors of recipes whose scales follow from the steps before, as arguments of
// operators. Operators that take a state are the overloads "with_state". They are apart because
// torch has to see which arguments a call writes, and most recipes write none.

namespace moejit::torch {

struct NoState {
  static constexpr std::array<const char*, 0> kNames{};
};
// The tensors that forward and update_weights take.
struct ForwardState {
  static constexpr std::array<const char*, 4> kNames = {"fc1_amax_history", "fc2_amax_history",
                                                        "fc1_scale", "fc2_scale"};
};
// The tensors that backward takes.
struct GradientState {
  static constexpr std::array<const char*, 4> kNames = {
      "fc1_grad_amax_history", "fc2_grad_amax_history", "fc1_grad_scale", "fc2_grad_scale"};
};

// The names of an operator's tensors; the state's tensors are last.
template <typename State, std::size_t kCount>
constexpr std::array<const char*, kCount + State::kNames.size()> with_state(
    const std::array<const char*, kCount>& others) {
  std::array<const char*, kCount + State::kNames.size()> names{};
  for (std::size_t i = 0; i < kCount; ++i) names[i] = others[i];
  for (std::size_t i = 0; i < State::kNames.size(); ++i) names[kCount + i] = State::kNames[i];
  return names;
}

// Adds the last tensors of an operator, its state, as far as a function of the layer uses them: one
// of MOEJIT_USED_BY_FORWARD, ...
template <typename State, std::size_t kCount>
void add_state(Call& call, const ReadyLayer& ready, const std::array<Tensor, kCount>& in,
               uint32_t function) {
  constexpr std::size_t kFirst = kCount - State::kNames.size();
  for (std::size_t i = 0; i < State::kNames.size(); ++i)
    if (ready.uses_state(State::kNames[i], function)) call.add(State::kNames[i], in[kFirst + i]);
}

}  // namespace moejit::torch
