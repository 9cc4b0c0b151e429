// SPDX-License-Identifier: Apache-2.0
#include "compiler/plan.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

// Returns whether the kernel has an argument or a tensor map of this tensor with an access that
// satisfies `holds`.
template <typename Holds>
bool accesses(const KernelPlan& kernel, std::string_view tensor, Holds holds) {
  const auto matches = [&](const auto& argument) {
    return argument.tensor == tensor && holds(argument.access);
  };
  return std::ranges::any_of(kernel.arguments, matches) ||
         std::ranges::any_of(kernel.tensor_maps, matches);
}

}  // namespace

std::string_view kind_of(const Plan& plan) { return plan.layer ? "layer" : "operation"; }

std::string name_of(const Plan& plan) {
  return plan.layer ? plan.layer->name : plan.operation->name;
}

std::string description_of(const Plan& plan) {
  return plan.layer ? to_json(*plan.layer) : to_json(*plan.operation);
}

bool touches(const KernelPlan& kernel, std::string_view tensor) {
  return accesses(kernel, tensor, [](Access) { return true; });
}

bool reads(Access access) { return access != Access::kWrite; }

bool reads(const KernelPlan& kernel, std::string_view tensor) {
  return accesses(kernel, tensor, [](Access access) { return reads(access); });
}

bool writes(Access access) { return access != Access::kRead; }

bool writes(const KernelPlan& kernel, std::string_view tensor) {
  return accesses(kernel, tensor, [](Access access) { return writes(access); });
}

bool touches(const Plan& plan, const CallPlan& call, std::string_view tensor) {
  return std::ranges::any_of(call.steps, [&](const CallStep& step) {
    return !step.is_collective && touches(plan.kernels[step.index], tensor);
  });
}

int64_t block_bytes(const CollectivePlan& step) {
  int64_t bytes = 0;
  for (const BlockMove& move : step.moves) bytes += move.bytes;
  return bytes;
}

int64_t block_offset(const TensorPlan& tensor) {
  return std::max({tensor.workspace_offset, tensor.saved_offset, tensor.deferred_offset});
}

bool begins_as_zeros(const TensorPlan& tensor) {
  return tensor.role == TensorRole::kQuantized && tensor.dtype == DType::kU32;
}

const TensorPlan* find_tensor(const Plan& plan, std::string_view name) {
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

Result<std::size_t> find_call(const Plan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.calls, name, &CallPlan::name);
  if (found != plan.calls.end()) return static_cast<std::size_t>(found - plan.calls.begin());
  const auto absent = std::ranges::find(plan.absent_calls, name, &AbsentCall::name);
  if (absent != plan.absent_calls.end())
    return fail(Stage::kLaunch, ErrorCode::kUnsupported, absent->why, absent->hint);
  std::string names;
  for (const CallPlan& call : plan.calls) names += (names.empty() ? "" : ", ") + call.name;
  return fail(Stage::kLaunch, ErrorCode::kUnsupported,
              fmt::format("{} has no call {}, wanted one of {}", plan.subject, name, names));
}

std::size_t call_of_kernel(const Plan& plan, std::size_t kernel) {
  const auto runs = [&](const CallPlan& call) {
    return std::ranges::find(call.steps, CallStep{.index = kernel}) != call.steps.end();
  };
  return static_cast<std::size_t>(std::ranges::find_if(plan.calls, runs) - plan.calls.begin());
}

bool call_takes(const Plan& plan, std::string_view call, std::string_view tensor) {
  const auto found = std::ranges::find(plan.calls, call, &CallPlan::name);
  return found != plan.calls.end() &&
         std::ranges::any_of(found->tensors, [&](const CallTensor& taken) {
           return !taken.is_shape_only && plan.tensors[taken.slot].name == tensor;
         });
}

bool has_memory(const CallPlan& call) {
  return call.workspace != BlockUse::kNone || call.saved != BlockUse::kNone ||
         call.deferred != BlockUse::kNone;
}

std::string dtype_hint(std::string_view tensor, DType got) {
  struct Choice {
    std::string_view tensor;
    DType dtype;
    std::string_view field;
  };
  constexpr Choice kChoices[] = {
      {"topk_ids", DType::kI32, "\"topk_ids_dtype\": \"i32\""},
      {"topk_ids", DType::kI64, "\"topk_ids_dtype\": \"i64\""},
      {"topk_probs", DType::kF32, "\"topk_probs_dtype\": \"f32\""},
      {"topk_probs", DType::kBF16, "\"topk_probs_dtype\": \"bf16\""},
      {"tokens_per_expert", DType::kI32, "\"tokens_per_expert_dtype\": \"i32\""},
      {"tokens_per_expert", DType::kI64, "\"tokens_per_expert_dtype\": \"i64\""},
      {"dprobs", DType::kF32, "\"topk_probs_dtype\": \"f32\""},
      {"dprobs", DType::kBF16, "\"topk_probs_dtype\": \"bf16\""},
  };
  for (const Choice& choice : kChoices)
    if (choice.tensor == tensor && choice.dtype == got)
      return fmt::format("a layer with {} in its description takes it so", choice.field);
  return {};
}

bool is_callers(TensorRole role) {
  return role != TensorRole::kSaved && role != TensorRole::kDeferred &&
         role != TensorRole::kWorkspace && role != TensorRole::kGroup;
}

std::string_view to_string(Movement movement) {
  switch (movement) {
    case Movement::kGather: return "gather";
    case Movement::kExchange: return "exchange";
  }
  return "unknown";
}

std::string_view to_string(TensorRole role) {
  switch (role) {
    case TensorRole::kInput: return "input";
    case TensorRole::kWeight: return "weight";
    case TensorRole::kQuantized: return "quantized";
    case TensorRole::kDispatched: return "dispatched";
    case TensorRole::kOutput: return "output";
    case TensorRole::kState: return "state";
    case TensorRole::kSaved: return "saved";
    case TensorRole::kDeferred: return "deferred";
    case TensorRole::kWorkspace: return "workspace";
    case TensorRole::kGroup: return "group";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::kRowMajor: return "row_major";
    case Layout::kScalesCompact: return "compact";
    case Layout::kScalesTiles: return "tiles";
    case Layout::kScalesColumns: return "columns";
    case Layout::kScalesGroups: return "groups";
    case Layout::kScalesSwizzled: return "swizzled";
  }
  return "unknown";
}

}  // namespace moejit::compiler
