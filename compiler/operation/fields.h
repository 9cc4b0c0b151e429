// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/operation.h"
#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Visits the fields of an operation's description, in the order in which they are written. One list
// of fields thus serves reading, writing, and listing the keys.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  // Visits a whole number that the description must have.
  virtual void required(std::string_view key, int64_t& value, const IntRange& range) = 0;
  // Visits a whole number that keeps its value if the description leaves it out.
  virtual void integer(std::string_view key, int64_t& value, const IntRange& range) = 0;
  virtual void boolean(std::string_view key, bool& value) = 0;
  virtual void activation(Activation& value) = 0;
  virtual void sizes(std::string_view key, std::vector<MatrixSize>& value) = 0;
  // Visits one of `names`, by its index.
  virtual void name(std::string_view key, std::size_t& index,
                    std::span<const std::string_view> names) = 0;

  // Visits one of `values`, by the name at the same index of `names`.
  template <typename Value, std::size_t kCount>
  void choice(std::string_view key, Value& value, const std::array<Value, kCount>& values,
              const std::array<std::string_view, kCount>& names) {
    auto index = static_cast<std::size_t>(std::ranges::find(values, value) - values.begin());
    name(key, index, names);
    value = values[std::min(index, kCount - 1)];
  }
  // Visits one of `values`, by its to_string().
  template <typename Value, std::size_t kCount>
  void choice(std::string_view key, Value& value, const std::array<Value, kCount>& values) {
    std::array<std::string_view, kCount> names;
    std::ranges::transform(values, names.begin(), [](Value one) { return to_string(one); });
    choice(key, value, values, names);
  }
};

// Shows the visitor every field of the description, in order: earlier fields bound later ones.
void visit_fields(OperationDescription& operation, FieldVisitor& visitor);

// Return a description of each operation, with its defaults, and the names of all operations.
std::vector<OperationDescription> default_operations();
std::vector<std::string_view> operation_names();

}  // namespace moejit::compiler
