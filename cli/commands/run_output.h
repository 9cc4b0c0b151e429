// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/checkpoint/write_safetensors.h"
#include "runtime/host_tensor.h"

namespace moejit::cli {

// Returns what `moejit run --output` writes of a layer's results: these alone or, with
// intermediates, all tensors in the form that docs/cli.md describes.
runtime::TensorMap tensors_for_file(const compiler::LayerPlan& plan, runtime::TensorMap results,
                                    bool with_intermediates);

}  // namespace moejit::cli
