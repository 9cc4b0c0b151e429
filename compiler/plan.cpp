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

bool is_of_part(const KernelPlan& kernel, const CallPart& part) {
  return kernel.phase == part.phase && (!part.half || kernel.half == part.half) &&
         (!part.dispatch_call || kernel.dispatch_call == part.dispatch_call);
}

bool is_used(const Plan& plan, const TensorPlan& tensor, const CallPart& part) {
  return std::ranges::any_of(plan.kernels, [&](const KernelPlan& kernel) {
    return is_of_part(kernel, part) && touches(kernel, tensor.name);
  });
}

bool is_used_for_shape(const Plan& plan, const TensorPlan& tensor,
                       std::optional<BackwardHalf> half) {
  if (half != BackwardHalf::kWeights || tensor.name != "dy") return false;
  return std::ranges::count(plan.kernels, half, &KernelPlan::half) > 0 &&
         !is_used(plan, tensor, {Phase::kBackward, half});
}

int64_t block_bytes(const CollectivePlan& step) {
  int64_t bytes = 0;
  for (const BlockMove& move : step.moves) bytes += move.bytes;
  return bytes;
}

int64_t block_offset(const TensorPlan& tensor) {
  return std::max({tensor.workspace_offset, tensor.saved_offset, tensor.deferred_offset});
}

bool is_optional(const TensorPlan& tensor, Phase phase) {
  return tensor.is_optional || (tensor.is_optional_in_backward && phase == Phase::kBackward) ||
         (tensor.role == TensorRole::kOutput && phase == Phase::kWeights);
}

bool begins_as_zeros(const TensorPlan& tensor) {
  return tensor.role == TensorRole::kQuantized && tensor.dtype == DType::kU32;
}

const TensorPlan* find_tensor(const Plan& plan, std::string_view name) {
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
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

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kWeights: return "weights";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kForwardScales: return "forward_scales";
    case Phase::kBackwardScales: return "backward_scales";
  }
  return "unknown";
}

std::string_view to_string(BackwardHalf half) {
  switch (half) {
    case BackwardHalf::kData: return "data";
    case BackwardHalf::kWeights: return "weights";
  }
  return "unknown";
}

std::string_view to_string(DispatchCall call) {
  switch (call) {
    case DispatchCall::kQuantize: return "quantize";
    case DispatchCall::kExperts: return "experts";
  }
  return "unknown";
}

std::string_view to_string(GradientMode mode) {
  switch (mode) {
    case GradientMode::kOverwrite: return "overwrite";
    case GradientMode::kAdd: return "add";
  }
  return "unknown";
}

}  // namespace moejit::compiler
