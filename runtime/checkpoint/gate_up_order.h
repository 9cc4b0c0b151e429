// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <optional>
#include <string>

namespace moejit::checkpoint {

// Returns how the model's family arranges gate and up in fused tensors. The family is `model_type`
// in the config.json of `folder`, either at its top or in its `text_config`. Returns none for an
// unknown family or without such a file. The file may have any content, since it only advises.
std::optional<compiler::GateUpLayout> family_gate_up_layout(const std::string& folder);

}  // namespace moejit::checkpoint
