// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

namespace moejit::runtime {

// Returns a layer of a few experts that is planned in no time.
inline compiler::Layer small_layer() {
  return {.name = "small",
          .experts = 4,
          .local_experts = 4,
          .top_k = 2,
          .hidden = 256,
          .intermediate = 128,
          .splits_alignment = 128,
          .max_tokens = 64,
          .max_permuted_rows = 128 * 5};
}

}  // namespace moejit::runtime
