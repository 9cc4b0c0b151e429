// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moejit::compiler {

// Fields of a layer description. Errors come from the view, with the field's path.

// Returns the names of the values of an enumeration.
template <typename Enum, std::size_t kCount>
std::array<std::string_view, kCount> names_of(const std::array<Enum, kCount>& values) {
  std::array<std::string_view, kCount> names;
  std::transform(values.begin(), values.end(), names.begin(),
                 [](Enum value) { return to_string(value); });
  return names;
}

// Return the value with the given name, of a view or of an optional field.
template <typename Enum, std::size_t kCount>
Result<Enum> read_enum(const JsonView& view, const std::array<Enum, kCount>& values) {
  MOEJIT_TRY_ASSIGN(const std::size_t index, view.read_choice(names_of(values)));
  return values[index];
}

template <typename Enum, std::size_t kCount>
Result<Enum> read_enum_at(const JsonView& root, std::string_view key,
                          const std::array<Enum, kCount>& values, Enum default_value) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return default_value;
  return read_enum(*view, values);
}

// Reads a required whole number.
inline Result<int32_t> read_int_at(const JsonView& root, std::string_view key,
                                   const IntRange& range) {
  MOEJIT_TRY_ASSIGN(const JsonView view, root.at(key));
  MOEJIT_TRY_ASSIGN(const int64_t number, view.read_int(range));
  return static_cast<int32_t>(number);
}

inline Result<int32_t> read_int_at(const JsonView& root, std::string_view key,
                                   const IntRange& range, int32_t default_value) {
  if (!root.find(key)) return default_value;
  return read_int_at(root, key, range);
}

inline Result<bool> read_bool_at(const JsonView& root, std::string_view key, bool default_value) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return default_value;
  return view->read_bool();
}

}  // namespace moejit::compiler
