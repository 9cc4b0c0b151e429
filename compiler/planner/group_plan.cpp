// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"

#include "compiler/compiler.h"
#include "compiler/memory_layout.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

DType ids_dtype(const Layer& layer) {
  return layer.topk_ids_dtype == TopkIdsDtype::kI64 ? DType::kI64 : DType::kI32;
}
DType probs_dtype(const Layer& layer) {
  return layer.topk_probs_dtype == TopkProbsDtype::kBf16 ? DType::kBF16 : DType::kF32;
}

// Returns the layer of a rank's experts. Choices have come as i32 and f32 for any description, and
// a rank knows an expert by its place among its own.
Layer layer_of_experts(const Layer& layer) {
  Layer experts = layer;
  experts.expert_parallel = {};
  experts.max_tokens = layer.expert_parallel.ranks * layer.max_tokens;
  experts.dispatch_calls = layer.dispatch != Dispatch::kNone;
  experts.topk_ids_dtype = TopkIdsDtype::kI32;
  experts.topk_probs_dtype = TopkProbsDtype::kF32;
  return experts;
}

Exchange exchange_of(const Layer& layer, const GroupPlanOptions& options, Phase phase) {
  const bool is_backward = phase == Phase::kBackward;
  const Format& rows = is_backward ? layer.recipe.gradients : layer.recipe.tokens;
  const bool is_fp8 = layer.dispatch == Dispatch::kFp8;
  return {.ranks = layer.expert_parallel.ranks,
          .rank = options.rank,
          .experts = layer.experts,
          .top_k = layer.top_k,
          .max_tokens = layer.max_tokens,
          .columns = layer.hidden,
          .format = is_fp8 ? DType::kF8E4M3 : DType::kBF16,
          .epsilon = is_fp8 ? rows.epsilon : 0.0f,
          .has_dprobs = is_backward && computes(layer, Gradient::kDprobs),
          .topk_ids = ids_dtype(layer),
          .topk_probs = probs_dtype(layer),
          .timeout_ms = options.timeout_ms};
}

void rename(Plan& plan, std::string_view from, std::string_view to) {
  for (TensorPlan& tensor : plan.tensors)
    if (tensor.name == from) tensor.name = to;
  for (KernelPlan& kernel : plan.kernels)
    for (KernelArgument& argument : kernel.arguments)
      if (argument.tensor == from) argument.tensor = to;
}

Result<void> add_steps(GroupPlan& plan, const GroupPlanOptions& options, Phase phase) {
  using enum ExchangeStep;
  const bool is_backward = phase == Phase::kBackward;
  const Exchange exchange = exchange_of(plan.layer, options, phase);
  for (const ExchangeStep step : {kChoices, kDispatch, kAwait, kCombinePush, kCombineSum}) {
    if (step == kChoices && is_backward) continue;  // those of the forward call
    MOEJIT_TRY_ASSIGN(Plan planned, plan_exchange(step, exchange, plan.target));
    rename(planned, "input", is_backward ? "dy" : "x");
    rename(planned, "output", is_backward ? "dx" : "y");
    plan.steps.push_back({step, phase, std::move(planned)});
  }
  return {};
}

// Returns the place of a tensor behind all others of the block.
void place(std::vector<PlacedTensor>& tensors, int64_t& end, std::string name, int64_t bytes) {
  end = align_offset(end);
  tensors.push_back({.name = std::move(name), .bytes = bytes, .offset = end});
  end += bytes;
}

const PlacedTensor* find(const std::vector<PlacedTensor>& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &PlacedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

// Places what peers reach: tensors that have the suffix of rank 0, and the epoch.
GroupMemory memory_of(const std::vector<GroupStep>& steps, int64_t rank) {
  GroupMemory memory;
  const std::string own = fmt::format("_{}", rank);
  for (const GroupStep& step : steps)
    for (const TensorPlan& tensor : step.plan.tensors) {
      const bool is_of_group = tensor.name.ends_with(own);
      if (!is_of_group && tensor.name != "epoch") continue;
      const std::string name = tensor.name.substr(0, tensor.name.size() - (is_of_group ? 2 : 0));
      if (find(memory.tensors, name) == nullptr)
        place(memory.tensors, memory.bytes, name, tensor.bytes);
    }
  memory.bytes = align_offset(memory.bytes);
  return memory;
}

// Places what steps and experts hand to each other: in the saved block if a backward call reads
// what the forward call left.
void place_handed(GroupPlan& plan) {
  const int64_t slots = plan.experts.layer.max_tokens;
  const int64_t choice_bytes = slots * plan.layer.top_k * 4, columns = plan.layer.hidden;
  const bool is_backward = has_backward(plan.layer);
  const CallPart backward = experts_part(plan, Phase::kBackward);
  const auto reads_back = [&](std::string_view name) {
    const TensorPlan* tensor = find_tensor(plan.experts, name);
    return is_backward && tensor != nullptr && is_used(plan.experts, *tensor, backward);
  };
  const auto add = [&](bool is_saved, std::string name, int64_t bytes) {
    place(is_saved ? plan.in_saved : plan.in_workspace,
          is_saved ? plan.saved_bytes : plan.workspace_bytes, std::move(name), bytes);
  };
  plan.workspace_bytes = plan.experts.workspace_bytes;
  plan.saved_bytes = plan.experts.saved_bytes;
  add(is_backward, "slot_ids", choice_bytes);
  add(reads_back("topk_probs"), "slot_probs", choice_bytes);
  add(false, "slot_results", slots * columns * 2);
  if (computes(plan.layer, Gradient::kDprobs)) add(false, "slot_dprobs", choice_bytes);
  const bool is_fp8 = plan.layer.dispatch == Dispatch::kFp8;
  if (reads_back(is_fp8 ? "x_q" : "x")) add(true, "received_x", slots * columns * (is_fp8 ? 1 : 2));
  if (is_fp8 && reads_back("x_scale_inv"))
    add(true, "received_x_scale_inv", slots * ceil_div(columns, 128) * 4);
  plan.workspace_bytes = align_offset(plan.workspace_bytes);
  plan.saved_bytes = align_offset(plan.saved_bytes);
}

// Returns the tensors of callers: those of tokens are the steps', the others the experts'.
std::vector<TensorPlan> callers_tensors(const GroupPlan& plan) {
  constexpr std::array kOfTokens =
      std::to_array<std::string_view>({"x", "topk_ids", "topk_probs", "y", "dy", "dx", "dprobs"});
  std::vector<TensorPlan> tensors;
  for (const std::string_view name : kOfTokens)
    for (const GroupStep& step : plan.steps)
      if (const TensorPlan* tensor = find_tensor(step.plan, name)) {
        tensors.push_back(*tensor);
        break;
      }
  for (const TensorPlan& tensor : plan.experts.tensors) {
    const bool is_of_tokens = std::ranges::find(kOfTokens, tensor.name) != kOfTokens.end();
    if (is_callers(tensor.role) && tensor.role != TensorRole::kDispatched && !is_of_tokens &&
        tensor.name != "status")
      tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

Layer layer_of_one_rank(const Layer& layer) {
  Layer one = layer_of_experts(layer);
  one.local_experts = layer.experts;
  one.dispatch_calls = false;
  one.topk_ids_dtype = layer.topk_ids_dtype;
  one.topk_probs_dtype = layer.topk_probs_dtype;
  one.max_permuted_rows = worst_case_permuted_rows(one);
  return one;
}

CallPart experts_part(const GroupPlan& plan, Phase phase) {
  if (plan.experts.layer.dispatch_calls && phase != Phase::kWeights)
    return {phase, {}, DispatchCall::kExperts};
  return {phase};
}

std::string name_in_group(const GroupPlan& plan, Phase phase, std::string_view name) {
  if (phase == Phase::kWeights) return std::string(name);
  const bool is_backward = phase == Phase::kBackward;
  const auto own = [&](std::string_view field) { return fmt::format("{}_{}", field, plan.rank); };
  if (name == "topk_ids") return "slot_ids";
  if (name == "topk_probs") return "slot_probs";
  if (name == "status") return own("group_status");
  if (name == "y" || name == "dx") return "slot_results";
  if (name == "dprobs") return "slot_dprobs";
  if (name == "x" || name == "x_q") return is_backward ? "received_x" : own("slots");
  if (name == "x_scale_inv") return is_backward ? "received_x_scale_inv" : own("slot_scales");
  if (name == "dy" || name == "dy_q") return own("slots");
  if (name == "dy_scale_inv") return own("slot_scales");
  return std::string(name);
}

Result<GroupPlan> plan_group_layer(const Layer& layer, const Target& target,
                                   const GroupPlanOptions& options) {
  const auto refuse = [&](std::string_view what, std::string hint) {
    return fail(Stage::kPlan, ErrorCode::kUnsupported,
                fmt::format("{}: {}", named_layer(layer), what), std::move(hint));
  };
  if (!is_of_group(layer))
    return refuse("got no expert_parallel, wanted it for a group of ranks",
                  R"(add "expert_parallel": {"ranks": R} to its description)");
  if (layer.dispatch == Dispatch::kFp8 && layer.scale_sharing_k != 1)
    return refuse(fmt::format("got scale_sharing_k {} with expert_parallel and the dispatch fp8, "
                              "wanted 1",
                              layer.scale_sharing_k),
                  R"(dispatch casts 128 columns at a time; or say "dispatch": "none")");
  GroupPlan plan;
  plan.layer = layer;
  plan.rank = options.rank;
  plan.target = target;
  MOEJIT_TRY(add_steps(plan, options, Phase::kForward));
  if (has_backward(layer)) MOEJIT_TRY(add_steps(plan, options, Phase::kBackward));
  MOEJIT_TRY_ASSIGN(plan.experts, plan_layer(layer_of_experts(layer), target, options.experts));
  plan.memory = memory_of(plan.steps, plan.rank);
  place_handed(plan);
  plan.tensors = callers_tensors(plan);
  return plan;
}

}  // namespace moejit::compiler
