// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/kernels/cast_transpose.h"
#include "compiler/router.h"
#include "compiler/support/error.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// A field of an operation's description: a number, a choice, an activation, sizes of a list, or the
// formula of a router.
struct OperationField {
  std::string key;
  std::variant<int64_t, bool, std::string, Activation, std::vector<MatrixSize>, RouterFormula>
      value;
  bool operator==(const OperationField&) const = default;
};

// The description of a single operation: a step of a layer with a plan of its own, for programs
// that want only this step. docs/operations-api.md describes all fields. A program that makes a
// description may leave out fields that have a default.
struct OperationDescription {
  std::string name;                    // "quantize", "permute_pad_grad", ...
  std::vector<OperationField> fields;  // of parse_operation(): all, in a stable order
  bool operator==(const OperationDescription&) const = default;
};

// Returns the value of a field; null if the description has no such field of this type.
template <typename Value>
const Value* find_field(const OperationDescription& operation, std::string_view key) {
  const auto found = std::ranges::find(operation.fields, key, &OperationField::key);
  return found == operation.fields.end() ? nullptr : std::get_if<Value>(&found->value);
}

// Returns whether a text is meant as the description of an operation: an object with "operation".
// False for text that is not JSON.
bool describes_operation(std::string_view json);

// Reads the description of an operation (docs/operations-api.md), with the errors of parse_layer().
Result<OperationDescription> parse_operation(std::string_view json, std::string_view source_name);

// Returns the description as JSON, which ends with a newline. parse_operation() reads back an equal
// record if it has all fields.
std::string to_json(const OperationDescription& operation);

}  // namespace moejit::compiler
