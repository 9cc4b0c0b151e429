// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "compiler/support/file.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace moejit::compiler {

// Returns the text of docs/examples/operations/NAME.json.
inline std::string example_text(std::string_view name) {
  const auto text = read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/examples/operations/" +
                                   std::string(name) + ".json");
  EXPECT_TRUE(text) << to_string(text.error());
  return text.value_or(std::string());
}

inline OperationDescription operation_of(std::string_view json) {
  Result<OperationDescription> operation = parse_operation(json, "operation");
  EXPECT_TRUE(operation) << to_string(operation.error());
  return operation.value_or(OperationDescription());
}

inline Plan plan_of(const OperationDescription& operation, const Target& target = {}) {
  Result<Plan> plan = plan_operation(operation, target);
  EXPECT_TRUE(plan) << to_string(plan.error());
  return plan.value_or(Plan());
}

}  // namespace moejit::compiler
