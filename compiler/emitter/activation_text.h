// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <string>

namespace moejit::compiler {

// The type Activation of an emitted text, see moejit_device/core/math.cuh: one operation a line,
// equal parts computed once, each rounded to fp32.
std::string value_type_text(const Activation& activation);
std::string gradients_type_text(const Activation& activation);
std::string value_and_gradients_type_text(const Activation& activation);

}  // namespace moejit::compiler
