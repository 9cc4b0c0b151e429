// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

struct ComposedType;
struct KernelText;

// The columns of a state of delayed scaling that belong to one operand: column e * stride + first
// for expert e (docs/recipes.md#fp8_delayed). Stride 0: there is no state.
struct AmaxColumns {
  int32_t stride = 0;
  int32_t first = 0;
  bool operator==(const AmaxColumns&) const = default;
};

constexpr bool is_recorded(const AmaxColumns& columns) { return columns.stride > 0; }

// Returns for example "3e+1".
std::string to_string(const AmaxColumns& columns);

// Returns the type with which store stages of rows record.
ComposedType recorded_amax();

// Adds the constants kAmaxStride and kAmaxFirst to the text of a kernel that records.
void add_amax_columns(KernelText& text, const AmaxColumns& columns);

}  // namespace moejit::compiler
