// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/graph.h"

#include <algorithm>
#include <fmt/core.h>
#include <set>

namespace moejit::compiler {
namespace {

tl::unexpected<Error> refuse(const Operation& operation, std::string_view verb,
                             std::string_view tensor, std::string_view why) {
  return fail(Stage::kPlan, ErrorCode::kInternal,
              fmt::format("the operation {} {} {}, {}", operation.name, verb, tensor, why));
}

bool is_given(const Value& value) {
  return value.role == TensorRole::kInput || value.role == TensorRole::kWeight ||
         value.role == TensorRole::kState || value.role == TensorRole::kGroup;
}

}  // namespace

Result<void> validate(const Graph& graph) {
  std::set<std::string, std::less<>> there;
  for (const Value& value : graph.values)
    if (is_given(value)) there.insert(value.name);
  const auto is_value = [&](const std::string& tensor) {
    return std::ranges::count(graph.values, tensor, &Value::name) == 1;
  };
  for (const Operation& operation : graph.operations) {
    for (const Port& port : operation.reads)
      for (const std::string& tensor : {port.tensor, port.scale_inv})
        if (!tensor.empty() && !there.contains(tensor))
          return refuse(operation, "reads", tensor, "which no operation before it writes");
    for (const Port& port : operation.writes) {
      for (const std::string& tensor : {port.tensor, port.scale_inv}) {
        if (tensor.empty()) continue;
        if (!is_value(tensor)) return refuse(operation, "writes", tensor, "which is no value");
        if (port.is_repeated && !there.contains(tensor))
          return refuse(operation, "writes", tensor, "again, which nobody has written before");
        there.insert(tensor);
      }
    }
  }
  return {};
}

}  // namespace moejit::compiler
