// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"

namespace moejit::cli {

// The tensors of a layer's experts, and how gate and up are arranged in those that have both.
struct LoadedExperts {
  TensorMap tensors;
  compiler::GateUpLayout layout = compiler::GateUpLayout::kConcat;
};

}  // namespace moejit::cli
