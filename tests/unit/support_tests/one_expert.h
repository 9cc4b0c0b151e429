// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/route.h"

#include <cstdint>

namespace moejit::reference {

// Returns the route to one expert that owns `rows` rows, with `pads` pad rows behind them.
inline Route one_expert(std::int32_t rows, std::int32_t pads = 0) {
  return {.counts = {rows}, .offs = {0, rows + pads}};
}

}  // namespace moejit::reference
