// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/support/json_view.h"

namespace moejit::compiler {

// Reads the value of "activation": a preset's name, or an object with a preset and its parameters
// or with a formula. Errors carry the JSON path and, for a formula, the column.
Result<Activation> read_activation(const JsonView& view);

}  // namespace moejit::compiler
