// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/fields.h"
#include "compiler/operation/operation_parts.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/planner_steps.h"
#include "compiler/support/json_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

void complete_tensor(TensorPlan& tensor, const KernelPlan& kernel) {
  tensor.role = writes(kernel, tensor.name) ? TensorRole::kOutput : TensorRole::kInput;
  tensor.bytes = size_bytes(tensor.dtype);
  for (const Dim& dim : tensor.shape) tensor.bytes *= dim.value;
}

}  // namespace

Result<Plan> plan_operation(const OperationDescription& operation, const Target& target,
                            const PlanOptions& options) {
  const PlanContext context{.target = target, .options = options};
  MOEJIT_TRY_ASSIGN(
      OperationParts parts,
      std::visit([&](const auto& kind) { return parts_of(kind, context); }, operation));
  const std::string_view name = operation_name(operation);
  parts.kernel.operation = name;
  explain_tuning(parts.kernel, target, options.tuning);
  Plan plan;  // filled field by field, as plan_layer() does
  plan.subject = fmt::format("the operation {}", name);
  plan.target = target;
  if (options.tuning != nullptr) plan.tuned_for = options.tuning->gpu();
  plan.bounds = parts.kernel.bounds;
  plan.tensors = std::move(parts.tensors);
  plan.operation = operation;
  for (TensorPlan& tensor : plan.tensors) complete_tensor(tensor, parts.kernel);
  plan.kernels.push_back(std::move(parts.kernel));
  plan.workspace_bytes = plan_workspace(plan, {}, {});
  make_operation_calls(plan);
  return plan;
}

namespace {

// Writes the fields as members of an object.
class Writer final : public FieldVisitor {
 public:
  explicit Writer(std::string_view operation) { add("operation", json_string(operation)); }

  void required(std::string_view key, int64_t& value, const IntRange& /*range*/) override {
    add(key, std::to_string(value));
  }
  void integer(std::string_view key, int64_t& value, const IntRange& /*range*/) override {
    add(key, std::to_string(value));
  }
  void boolean(std::string_view key, bool& value) override { add(key, value ? "true" : "false"); }
  void activation(Activation& value) override { add("activation", to_json(value)); }
  void sizes(std::string_view key, std::vector<MatrixSize>& value) override {
    std::string list;
    for (const MatrixSize& size : value)
      list += fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", size.rows, size.columns);
    add(key, fmt::format("[{}]", list));
  }
  void name(std::string_view key, std::size_t& index,
            std::span<const std::string_view> names) override {
    add(key, json_string(names[index]));
  }

  std::string text() const { return fmt::format("{{\n{}\n}}\n", members_); }

 private:
  void add(std::string_view key, std::string_view value) {
    members_ += fmt::format("{}  \"{}\": {}", members_.empty() ? "" : ",\n", key, value);
  }

  std::string members_;
};

}  // namespace

std::string to_json(const OperationDescription& operation) {
  OperationDescription copy = operation;  // a copy, because visitors may change fields
  Writer writer(operation_name(operation));
  visit_fields(copy, writer);
  return writer.text();
}

}  // namespace moejit::compiler
