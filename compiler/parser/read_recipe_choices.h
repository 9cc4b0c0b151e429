// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/support/json_view.h"

namespace moejit::compiler {

// Reads the choices that some recipes have into a layer whose recipe is known. These are
// power_of_2_scales, gradient_format (a member of the recipe), margin, amax_history_len and
// amax_compute_algo. Errors: a field's, and kInvalidValue for a choice that the recipe does not
// have.
Result<void> read_recipe_choices(const JsonView& root, Layer& layer);

}  // namespace moejit::compiler
