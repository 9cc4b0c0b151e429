// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/target.h"

namespace moejit::compiler {

// Refuses what this version cannot run on a target, naming the field and what it can run. A layer
// that passes can be planned.
Result<void> check_support(const Layer& layer, const Target& target);

}  // namespace moejit::compiler
