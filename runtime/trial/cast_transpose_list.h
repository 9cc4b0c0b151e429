// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/operation.h"
#include "runtime/trial/device_tensors.h"

#include <string>
#include <vector>

namespace moejit::trial {

// Allocates the tensors of a list, from "input.0" and, where it is there, "scale.0" of `inputs` on,
// and with them "tensors" and "tile_ends", which multi_cast_transpose reads. Returns the names of
// those that it writes: "output.0", "output_colwise.0", "amax.0", "scale_inv.0", ...
Result<std::vector<std::string>> add_list(const compiler::MultiCastTransposeOperation& operation,
                                          const runtime::TensorMap& inputs, DeviceTensors& tensors);

}  // namespace moejit::trial
