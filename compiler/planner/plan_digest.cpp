// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/support/digest.h"
#include "templates/embedded_templates.h"

namespace moejit::compiler {
namespace {

// Raised when the meaning of a field changes.
constexpr int kPlanSchema = 1;

constexpr std::size_t kDigits = 32;

// Ranks of a group call its memory by other names, and have the same digest.
bool is_named(const TensorPlan& tensor) { return tensor.role != TensorRole::kGroup; }

void add_tensor(FieldHasher& hasher, const TensorPlan& tensor) {
  hasher.add("tensor", is_named(tensor) ? tensor.name : "")
      .add("dtype", to_string(tensor.dtype))
      .add("layout", to_string(tensor.layout))
      .add("role", to_string(tensor.role))
      .add("is_optional", tensor.is_optional)
      .add("is_optional_in_backward", tensor.is_optional_in_backward)
      .add("workspace_offset", tensor.workspace_offset)
      .add("saved_offset", tensor.saved_offset)
      .add("dims", std::ssize(tensor.shape));
  for (const Dim& dim : tensor.shape) hasher.add(dim.symbol, dim.value);
}

// Adds the spec of a kernel instead of its text, because the spec decides the text.
void add_kernel(FieldHasher& hasher, const Plan& plan, const KernelPlan& kernel) {
  hasher.add("kernel", kernel.operation)
      .add("phase", kernel.phase)
      .add("gradient_mode", kernel.gradient_mode)
      .add("spec", to_string(kernel.spec))
      .add("arguments", std::ssize(kernel.arguments));
  for (const KernelArgument& argument : kernel.arguments) {
    const TensorPlan* const tensor = find_tensor(plan, argument.tensor);
    hasher.add(argument.role, tensor == nullptr || is_named(*tensor) ? argument.tensor : "");
  }
  hasher.add("tensor_maps", std::ssize(kernel.tensor_maps));
  for (const TensorMapPlan& map : kernel.tensor_maps) hasher.add(map.role, map.tensor);
}

void add_collective(FieldHasher& hasher, const CollectivePlan& step) {
  hasher.add("collective", step.operation)
      .add("phase", step.phase)
      .add("before", int64_t{step.before})
      .add("moves", std::ssize(step.moves));
  for (const BlockMove& move : step.moves)
    hasher.add("movement", to_string(move.movement))
        .add("destination", move.destination)
        .add("bytes", move.bytes);
}

// Returns the plan's description, of a layer without its name.
std::string unnamed_description(const Plan& plan) {
  if (!plan.layer) return description_of(plan);
  Layer unnamed = *plan.layer;
  unnamed.name.clear();
  return to_json(unnamed);
}

}  // namespace

std::string plan_digest(const Plan& plan) {
  FieldHasher hasher;
  hasher.add("schema", kPlanSchema)
      .add("moejit", MOEJIT_VERSION)
      .add("target", to_string(plan.target))
      .add(kind_of(plan), unnamed_description(plan))
      .add("workspace_bytes", plan.workspace_bytes)
      .add("saved_bytes", plan.saved_bytes)
      .add("tensors", std::ssize(plan.tensors));
  for (const TensorPlan& tensor : plan.tensors) add_tensor(hasher, tensor);
  hasher.add("kernels", std::ssize(plan.kernels));
  for (const KernelPlan& kernel : plan.kernels) add_kernel(hasher, plan, kernel);
  for (const CollectivePlan& step : plan.collectives) add_collective(hasher, step);
  for (const templates::EmbeddedFile& file : templates::embedded_files())
    hasher.add(file.include_name, file.sha256);
  return hasher.digest().hex().substr(0, kDigits);
}

}  // namespace moejit::compiler
