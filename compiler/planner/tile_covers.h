// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/integer.h"

#include <cstdint>
#include <vector>

namespace moejit::compiler {

// Returns the specs of a GEMM that cover `columns` columns: the chosen one, with wide tiles alone,
// and with narrow tiles alone.
template <typename Spec>
std::vector<Spec> covers_of(const Spec& chosen, int32_t columns) {
  Spec wide = chosen, narrow = chosen;
  wide.wide_tiles = static_cast<int32_t>(ceil_div(columns, chosen.wide_columns));
  wide.narrow_tiles = 0;
  narrow.wide_tiles = 0;
  narrow.narrow_tiles = static_cast<int32_t>(ceil_div(columns, chosen.narrow_columns));
  return {chosen, wide, narrow};
}

}  // namespace moejit::compiler
