// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <optional>
#include <string>

namespace moejit::checkpoint {

// Returns how the model's family arranges gate and up in fused tensors, by `model_type` in the
// config.json of `folder`, its own or that of its `text_config`. None for an unknown family and
// without such a file; the file may have any content, since it only advises.
std::optional<compiler::GateUpLayout> family_gate_up_layout(const std::string& folder);

}  // namespace moejit::checkpoint
