// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"

#include <cstdint>

namespace moejit::cli {

// How many permuted rows the routing of `inputs` gives and to how many tokens, counted on the host.
struct RoutedRows {
  int64_t tokens = 0;  // that have a row at least
  int64_t routed = 0;  // (token, k) that have a row
  int64_t padded = 0;  // offs[E]
};
RoutedRows count_routed_rows(const compiler::Layer& layer, const TensorMap& inputs);

}  // namespace moejit::cli
