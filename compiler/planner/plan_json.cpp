// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/planner/group_report.h"

namespace moejit::compiler {
namespace {

// Returns the JSON of a description that was written as text.
Json description_json(const std::string& text) {
  return Json(parse_json(text, {.source_name = "description"}).value().root);
}

Json tensor_json(const TensorPlan& tensor) {
  Json shape = Json::array(), symbols = Json::array();
  for (const Dim& dim : tensor.shape) {
    shape.push_back(dim.value);
    symbols.push_back(dim.symbol);
  }
  Json json = {{"name", tensor.name},
               {"dtype", to_string(tensor.dtype)},
               {"shape", shape},
               {"symbols", symbols},
               {"layout", to_string(tensor.layout)},
               {"role", to_string(tensor.role)},
               {"is_optional", tensor.is_optional},
               {"is_optional_in_backward", tensor.is_optional_in_backward},
               {"bytes", tensor.bytes},
               {"first_use", tensor.first_use},
               {"last_use", tensor.last_use}};
  if (tensor.role == TensorRole::kWorkspace) json["workspace_offset"] = tensor.workspace_offset;
  if (tensor.role == TensorRole::kSaved) json["saved_offset"] = tensor.saved_offset;
  if (tensor.role == TensorRole::kDeferred) json["deferred_offset"] = tensor.deferred_offset;
  return json;
}

Json kernel_json(const KernelPlan& kernel) {
  Json arguments = Json::object();
  for (const KernelArgument& argument : kernel.arguments)
    arguments[argument.role] = argument.tensor;
  Json tensor_maps = Json::object();
  for (const TensorMapPlan& map : kernel.tensor_maps) tensor_maps[map.role] = map.tensor;
  Json json = {{"operation", kernel.operation},
               {"phase", kernel.phase},
               {"spec", to_string(kernel.spec)},
               {"threads", kernel.launch.threads},
               {"max_ctas", kernel.launch.max_ctas},
               {"ctas_per_sm", kernel.launch.ctas_per_sm},
               {"shared_bytes", kernel.launch.shared_bytes},
               {"arguments", arguments},
               {"tensor_maps", tensor_maps},
               {"min_bytes", kernel.min_bytes},
               {"multiply_adds", kernel.multiply_adds},
               {"reasons", kernel.reasons}};
  if (kernel.sent_bytes > 0) json["sent_bytes"] = kernel.sent_bytes;
  if (kernel.launch.cluster_ctas > 1) json["cluster_ctas"] = kernel.launch.cluster_ctas;
  if (kernel.launch.overlaps) json["overlaps"] = true;
  if (!kernel.problem.empty()) {
    json["problem"] = kernel.problem;
    json["choices"] = to_json(kernel.choices);
  }
  if (!kernel.half.empty()) json["half"] = kernel.half;
  if (!kernel.dispatch_call.empty()) json["dispatch_call"] = kernel.dispatch_call;
  if (!kernel.gradient_mode.empty()) json["gradient_mode"] = kernel.gradient_mode;
  return json;
}

Json kernels_json(const Plan& plan) {
  Json kernels = Json::array();
  for (const KernelPlan& kernel : plan.kernels) kernels.push_back(kernel_json(kernel));
  return kernels;
}

Json collectives_json(const Plan& plan) {
  Json steps = Json::array();
  for (const CollectivePlan& step : plan.collectives) {
    Json moves = Json::array();
    for (const BlockMove& move : step.moves)
      moves.push_back({{"movement", to_string(move.movement)},
                       {"source", move.source},
                       {"destination", move.destination},
                       {"bytes", move.bytes}});
    steps.push_back({{"operation", step.operation},
                     {"phase", step.phase},
                     {"before", step.before},
                     {"moves", moves},
                     {"reasons", step.reasons}});
  }
  return steps;
}

Json saved_json(const Plan& plan) {
  Json saved = Json::array();
  for (const SavedMemory& other : compare_saved_memory(plan))
    saved.push_back({{"recipe", to_string(other.recipe)},
                     {"recompute", to_string(other.recompute)},
                     {"saved_bytes", other.bytes}});
  return saved;
}

Json tensors_json(const Plan& plan) {
  Json tensors = Json::array();
  for (const TensorPlan& tensor : plan.tensors) tensors.push_back(tensor_json(tensor));
  return tensors;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json json = {{kind_of(plan), description_json(description_of(plan))},
               {"target", to_string(plan.target)},
               {"plan_digest", plan_digest(plan)},
               {"workspace_bytes", plan.workspace_bytes}};
  if (plan.layer) {
    json["saved_bytes"] = plan.saved_bytes;
    json["deferred_bytes"] = plan.deferred_bytes;
    json["saved_memory"] = saved_json(plan);
    json["quantized_weight_bytes"] = plan.quantized_weight_bytes;
  }
  json["kernels"] = kernels_json(plan);
  json["tensors"] = tensors_json(plan);
  if (plan.layer) json["reasons"] = plan.reasons;
  if (!plan.collectives.empty()) json["collectives"] = collectives_json(plan);
  if (plan.group) json["group"] = group_json(plan);
  return json.dump(2) + "\n";
}

}  // namespace moejit::compiler
