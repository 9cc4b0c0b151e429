// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/param_record.h"

namespace moejit::compiler {

// Returns the record of params/transpose_params.h, which transposes and casts by columns share.
const ParamRecord& transpose_record();

}  // namespace moejit::compiler
