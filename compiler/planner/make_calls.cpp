// SPDX-License-Identifier: Apache-2.0
#include "compiler/memory_layout.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

namespace moejit::compiler {
namespace {

// What a description needs for a call. `why` and `hint` are sentences of the error without it.
struct Need {
  bool (*holds)(const Layer& layer);
  fmt::string_view why;  // with the plan's subject
  std::string_view hint;
};
const Need kBackwardPass = {has_backward, "{} has no backward pass",
                            R"(add "backward" to "passes" in its description)"};
const Need kHalves = {
    [](const Layer& layer) { return layer.backward_halves; },
    "the backward pass of {} has no halves",
    R"(add "backward_halves": true to its description, or run all of it at once)"};
const Need kLinears = {
    [](const Layer& layer) { return layer.backward_linears; },
    "the backward pass of {} is not parted by fc2 and fc1",
    R"(add "backward_linears": true to its description, or run all of it at once)"};
const Need kDispatchCalls = {
    [](const Layer& layer) { return layer.dispatch_calls; },
    "{} has no calls before and after a dispatch",
    R"(add "dispatch_calls": true to its description, or run all of a pass at once)"};
const Need kAccumulation = {
    [](const Layer& layer) { return layer.fuse_wgrad_accumulation; },
    "{} overwrites the gradients of weights and adds nothing to them",
    R"(overwrite them, or add "fuse_wgrad_accumulation": true to its description)"};

// A call that layers may have: the kernels that it runs, and what it needs, in the order in which
// errors name it.
struct LayerCall {
  std::string_view name;
  Phase phase = Phase::kForward;
  std::optional<BackwardHalf> half = {};
  std::optional<DispatchCall> dispatch_call = {};
  bool adds = false;
  std::vector<Need> needs = {};
};

// Every call of layers.
std::vector<LayerCall> layer_calls() {
  constexpr auto kData = BackwardHalf::kData, kWeights = BackwardHalf::kWeights;
  constexpr auto kFc2 = BackwardHalf::kFc2, kFc1 = BackwardHalf::kFc1;
  constexpr auto kQuantize = DispatchCall::kQuantize, kExperts = DispatchCall::kExperts;
  constexpr auto kForward = Phase::kForward, kBackward = Phase::kBackward;
  return {
      {"update_weights", Phase::kWeights},
      {"update_forward_scales", Phase::kForwardScales},
      {"update_backward_scales", Phase::kBackwardScales, {}, {}, false, {kBackwardPass}},
      {"forward", kForward},
      {"quantize", kForward, {}, kQuantize, false, {kDispatchCalls}},
      {"experts", kForward, {}, kExperts, false, {kDispatchCalls}},
      {"backward", kBackward, {}, {}, false, {kBackwardPass}},
      {"backward+add", kBackward, {}, {}, true, {kBackwardPass, kAccumulation}},
      {"backward_data", kBackward, kData, {}, false, {kBackwardPass, kHalves}},
      {"backward_weights", kBackward, kWeights, {}, false, {kBackwardPass, kHalves}},
      {"backward_weights+add",
       kBackward,
       kWeights,
       {},
       true,
       {kBackwardPass, kHalves, kAccumulation}},
      {"backward_fc2", kBackward, kFc2, {}, false, {kBackwardPass, kLinears}},
      {"backward_fc2+add", kBackward, kFc2, {}, true, {kBackwardPass, kLinears, kAccumulation}},
      {"backward_fc1", kBackward, kFc1, {}, false, {kBackwardPass, kLinears}},
      {"backward_fc1+add", kBackward, kFc1, {}, true, {kBackwardPass, kLinears, kAccumulation}},
      {"quantize_grad", kBackward, {}, kQuantize, false, {kDispatchCalls, kBackwardPass}},
      {"experts_grad", kBackward, {}, kExperts, false, {kDispatchCalls, kBackwardPass}},
      {"experts_grad+add",
       kBackward,
       {},
       kExperts,
       true,
       {kDispatchCalls, kBackwardPass, kAccumulation}},
  };
}

using Operations = std::span<const Operation* const>;

// Returns whether the operation belongs to the call, whatever calls do with gradients.
bool is_of_call(const Operation& operation, const LayerCall& call) {
  return operation.phase == call.phase && (!call.half || operation.half == call.half) &&
         (!call.dispatch_call || operation.dispatch_call == call.dispatch_call);
}

// Returns whether an operation of the call runs, since it does with gradients what the call does.
bool runs(const Operation& operation, const LayerCall& call) {
  const GradientMode mode = call.adds ? GradientMode::kAdd : GradientMode::kOverwrite;
  return !operation.gradient_mode || operation.gradient_mode == mode;
}

std::vector<const KernelPlan*> kernels_of(const Plan& plan, Operations operations,
                                          const LayerCall& call) {
  std::vector<const KernelPlan*> kernels;
  for (std::size_t kernel = 0; kernel < plan.kernels.size(); ++kernel)
    if (is_of_call(*operations[kernel], call) && runs(*operations[kernel], call))
      kernels.push_back(&plan.kernels[kernel]);
  return kernels;
}

std::vector<CallStep> steps_of(const Plan& plan, Operations operations, const LayerCall& call) {
  std::vector<CallStep> steps;
  for (std::size_t kernel = 0; kernel < plan.kernels.size(); ++kernel) {
    if (!is_of_call(*operations[kernel], call)) continue;
    for (std::size_t i = 0; i < plan.collectives.size(); ++i)
      if (plan.collectives[i].before == static_cast<int32_t>(kernel))
        steps.push_back({.is_collective = true, .index = i});
    if (runs(*operations[kernel], call)) steps.push_back({.index = kernel});
  }
  return steps;
}

// A second part takes dy so that it knows T, even if its kernels do not read dy.
bool tells_shape_alone(const TensorPlan& tensor, const LayerCall& call, bool is_used) {
  return !is_used && is_second(call.half) && tensor.name == "dy";
}

bool is_optional(const TensorPlan& tensor, const LayerCall& call) {
  return tensor.is_optional || (tensor.is_optional_in_backward && call.phase == Phase::kBackward) ||
         (tensor.role == TensorRole::kOutput && call.phase == Phase::kWeights);
}

// Returns what kernels do with a tensor, one behind the other; nothing if none touches it. What the
// first one writes needs no old content, even if others read it.
std::optional<Access> access_of(const std::vector<const KernelPlan*>& kernels,
                                std::string_view tensor) {
  std::optional<Access> access;
  for (const KernelPlan* kernel : kernels) {
    const bool is_read = reads(*kernel, tensor), is_written = writes(*kernel, tensor);
    if (!is_read && !is_written) continue;
    if (!access)
      access = !is_written ? Access::kRead : is_read ? Access::kReadWrite : Access::kWrite;
    else if (is_written && access == Access::kRead)
      access = Access::kReadWrite;
  }
  return access;
}

std::vector<CallTensor> tensors_of(const Plan& plan, Operations operations, const LayerCall& call) {
  const std::vector<const KernelPlan*> kernels = kernels_of(plan, operations, call);
  std::vector<CallTensor> tensors;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const TensorPlan& tensor = plan.tensors[slot];
    if (!is_callers(tensor.role)) continue;
    const std::optional<Access> access = access_of(kernels, tensor.name);
    const bool is_shape_only = !kernels.empty() && tells_shape_alone(tensor, call, !!access);
    if (!access && !is_shape_only) continue;
    tensors.push_back({.slot = slot,
                       .access = access.value_or(Access::kRead),
                       .is_optional = is_optional(tensor, call),
                       .is_shape_only = is_shape_only});
  }
  return tensors;
}

bool touches(const Plan& plan, const CallStep& step, std::string_view tensor) {
  if (!step.is_collective) return touches(plan.kernels[step.index], tensor);
  return std::ranges::any_of(plan.collectives[step.index].moves, [&](const BlockMove& move) {
    return move.source == tensor || move.destination == tensor;
  });
}

// Returns whether a step of the call touches a tensor of the saved block.
bool reads_saved(const Plan& plan, const std::vector<CallStep>& steps) {
  return std::ranges::any_of(plan.tensors, [&](const TensorPlan& tensor) {
    return tensor.role == TensorRole::kSaved &&
           std::ranges::any_of(
               steps, [&](const CallStep& step) { return touches(plan, step, tensor.name); });
  });
}

// Sets what the call does with blocks: calls that only quantize, or find scales, have none.
void set_blocks(const Plan& plan, const LayerCall& of, CallPlan& call) {
  if (of.phase == Phase::kWeights || is_of_scales(of.phase) ||
      of.dispatch_call == DispatchCall::kQuantize)
    return;
  call.workspace = BlockUse::kWrite;
  call.saved = of.phase == Phase::kForward ? BlockUse::kWrite : BlockUse::kRead;
  if (of.half == BackwardHalf::kFc1 && !reads_saved(plan, call.steps)) call.saved = BlockUse::kNone;
  if (of.phase == Phase::kBackward)
    call.deferred = is_second(of.half) ? BlockUse::kRead : BlockUse::kWrite;
}

// Returns where the last tensor of the workspace ends that a step touches.
int64_t workspace_bytes_of(const Plan& plan, const std::vector<CallStep>& steps) {
  int64_t bytes = 0;
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == TensorRole::kWorkspace &&
        std::ranges::any_of(steps,
                            [&](const CallStep& step) { return touches(plan, step, tensor.name); }))
      bytes = std::max(bytes, align_offset(tensor.workspace_offset + tensor.bytes));
  return bytes;
}

CallPlan make_call(const Plan& plan, Operations operations, const LayerCall& of, bool is_of_group) {
  CallPlan call{.name = std::string(of.name),
                .steps = steps_of(plan, operations, of),
                .tensors = tensors_of(plan, operations, of),
                .adds = of.adds,
                .is_of_all_ranks =
                    is_of_group && (of.phase == Phase::kForward || of.phase == Phase::kBackward)};
  set_blocks(plan, of, call);
  call.workspace_bytes = workspace_bytes_of(plan, call.steps);
  return call;
}

// Returns what two calls do with a tensor that both take, one behind the other.
CallTensor join(const CallTensor& first, const CallTensor& second) {
  CallTensor both = first;
  if (writes(second.access) && first.access == Access::kRead) both.access = Access::kReadWrite;
  both.is_optional = first.is_optional && second.is_optional;
  both.is_shape_only = first.is_shape_only && second.is_shape_only;
  return both;
}

// Returns the call that does what two calls do, one behind the other: it saves the host one of
// them. The second one uses all blocks that the first one uses.
CallPlan join(const CallPlan& first, const CallPlan& second) {
  CallPlan both = second;
  both.name = first.name + "+" + second.name;
  both.steps = first.steps;
  both.steps.insert(both.steps.end(), second.steps.begin(), second.steps.end());
  both.workspace_bytes = std::max(first.workspace_bytes, second.workspace_bytes);
  for (const CallTensor& tensor : first.tensors) {
    const auto after = std::ranges::lower_bound(both.tensors, tensor.slot, {}, &CallTensor::slot);
    if (after != both.tensors.end() && after->slot == tensor.slot)
      *after = join(tensor, *after);
    else
      both.tensors.insert(after, tensor);
  }
  return both;
}

}  // namespace

void make_layer_calls(const Layer& layer, Operations operations, Plan& plan) {
  for (const LayerCall& call : layer_calls()) {
    const auto missing =
        std::ranges::find_if(call.needs, [&](const Need& need) { return !need.holds(layer); });
    if (missing == call.needs.end())
      plan.calls.push_back(make_call(plan, operations, call, is_of_group(layer)));
    else
      plan.absent_calls.push_back({.name = std::string(call.name),
                                   .why = fmt::format(fmt::runtime(missing->why), plan.subject),
                                   .hint = std::string(missing->hint)});
  }
  const auto of = [&](std::string_view name) {
    return *std::ranges::find(plan.calls, name, &CallPlan::name);
  };
  plan.calls.push_back(join(of("update_weights"), of("forward")));
}

void make_operation_calls(Plan& plan) {
  const Operation any;
  const std::vector<const Operation*> operations(plan.kernels.size(), &any);
  plan.calls.push_back(make_call(plan, operations, {.name = "run"}, false));
}

}  // namespace moejit::compiler
