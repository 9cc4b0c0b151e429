// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

namespace moejit::checkpoint {

// The tensors of a layer's experts, and how gate and up are arranged in those that have both.
struct LoadedExperts {
  runtime::TensorMap tensors;
  compiler::GateUpLayout layout = compiler::GateUpLayout::kConcat;
};

}  // namespace moejit::checkpoint
