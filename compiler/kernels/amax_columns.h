// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit::compiler {

// The columns of a state of delayed scaling that belong to one operand: column e * stride + first
// for expert e (docs/recipes.md#fp8_delayed). Stride 0: there is no state.
struct AmaxColumns {
  int32_t stride = 0;
  int32_t first = 0;
  bool operator==(const AmaxColumns&) const = default;
};

constexpr bool is_recorded(const AmaxColumns& columns) { return columns.stride > 0; }

}  // namespace moejit::compiler
