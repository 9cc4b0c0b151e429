// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/layer.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Copies the experts' scales of an operand of fc1 and of one of fc2 out of their states, and
// inverts them. A thread takes an expert.
struct TakeScalesSpec {
  int32_t experts = 0;
  AmaxColumns columns = {};  // of both operands in their states
  int32_t threads = 128;
  bool operator==(const TakeScalesSpec&) const = default;
};

std::string to_string(const TakeScalesSpec& spec);

// Moves the histories of largest magnitudes of fc1 and fc2 on by a step, and finds the scales of
// the next step from them (docs/recipes.md#fp8_delayed). A CTA takes 32 columns of a state.
struct UpdateScalesSpec {
  int32_t columns = 0;         // of each state
  int32_t history_length = 0;  // steps that a history holds, this one included
  float largest = 0.0f;        // the format's largest number times 2^-margin
  AmaxComputeAlgo algorithm = AmaxComputeAlgo::kMax;
  int32_t threads = 1024;
  bool operator==(const UpdateScalesSpec&) const = default;
};

std::string to_string(const UpdateScalesSpec& spec);

}  // namespace moejit::compiler
