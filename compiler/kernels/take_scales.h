// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"

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

}  // namespace moejit::compiler
