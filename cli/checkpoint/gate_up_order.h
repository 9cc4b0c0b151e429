// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <optional>
#include <string>

namespace moejit::cli {

// Tells how the family of the model in `folder` has gate and up in fused tensors of a checkpoint:
// by `model_type` in config.json, its own or that of its `text_config`. Nothing of a family that is
// not known and where there is no such file; it may have any content, since it only advises.
std::optional<compiler::GateUpLayout> family_gate_up_layout(const std::string& folder);

}  // namespace moejit::cli
