// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/target.h"

namespace moejit::compiler {

// Checks that this version can run a layer on a target; an error names the field and what can be
// run. A layer that passes can be planned.
Result<void> check_support(const Layer& layer, const Target& target);

}  // namespace moejit::compiler
