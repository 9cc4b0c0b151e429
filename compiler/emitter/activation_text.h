// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <string>

namespace moejit::compiler {

// Return the text of the type Activation in an emitted kernel, see moejit_device/core/math.cuh. It
// has one operation a line, each rounded to fp32, and computes equal parts once.
std::string value_type_text(const Activation& activation);
std::string gradients_type_text(const Activation& activation);
std::string value_and_gradients_type_text(const Activation& activation);

}  // namespace moejit::compiler
