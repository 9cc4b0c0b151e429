// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/group_plan.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/exchange_operation.h"
#include "compiler/planner/fusions.h"
#include "compiler/planner/place_in_group.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

int64_t bytes_of_role(const Plan& plan, TensorRole role) {
  int64_t bytes = 0;
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == role) bytes += tensor.bytes;
  return bytes;
}

std::string permuted_rows_reason(const Layer& layer) {
  const int64_t worst = worst_case_permuted_rows(layer);
  const int64_t tokens = layer.max_tokens * std::max(layer.expert_parallel.ranks, 1);
  if (layer.max_permuted_rows >= worst)
    return fmt::format("P = {} rows hold any routing of {} tokens", layer.max_permuted_rows,
                       tokens);
  return fmt::format(
      "P = {} rows, fewer than the {} that the worst routing of {} tokens needs: "
      "rows beyond are dropped and the status word says so",
      layer.max_permuted_rows, worst, tokens);
}

// Names the gradients that a layer computes if it does not compute all.
std::string gradients_reason(const Layer& layer) {
  std::string names;
  for (const Gradient gradient : gradients_of(layer))
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(gradient));
  return fmt::format("backward computes {} alone: nothing else is launched or saved", names);
}

// Returns the reasons for choices of the whole layer.
std::vector<std::string> layer_reasons(const Layer& layer) {
  std::vector<std::string> reasons = {permuted_rows_reason(layer)};
  if (layer.scale_sharing_k > 1)
    reasons.push_back(
        fmt::format("{} neighboring scale blocks along the contraction share a scale: GEMMs stop "
                    "to scale half "
                    "as often, and a block quieter than its neighbor is quantized more coarsely",
                    layer.scale_sharing_k));
  if (has_two_levels(layer.recipe.tokens))
    reasons.emplace_back(
        "GEMMs multiply in bf16: no kernel gives tensor cores E2M1 with a scale for each 16 "
        "products, which GPUs before Blackwell do not take. E2M1 times E4M3 is a number of bf16, "
        "and complete sums meet the scales of "
        "experts in fp32, so operands are those of nvfp4 exactly, at the speed and size of bf16");
  else if (layer.recipe.tokens.is_recovered)
    reasons.emplace_back(
        "GEMMs multiply in bf16: no kernel gives tensor cores a scale for each 32 products, "
        "which GPUs before Blackwell do not take, and e4m3 times a power of two is a number of "
        "bf16, so operands are those of mxfp8 "
        "exactly, at the speed and size of bf16");
  return reasons;
}

// Returns the operations of a layer in order, fused where that pays, without operations that nobody
// needs. `layer` is what with_shared_chosen() makes of the one that is described; `of_experts` is
// `layer` itself, or what layer_of_experts() makes of a group's.
Graph fused_graph(const Layer& described, const Layer& layer, const Layer& of_experts,
                  const Target& target, const PlanOptions& options,
                  std::vector<std::string>& reasons) {
  const std::vector<std::string> outputs = layer_outputs(described);
  Graph graph = layer_graph(of_experts);
  if (is_grouped(layer)) take_grouped_rows(graph, layer, reasons);
  prune(graph, outputs, true);
  fuse_quantize(graph, of_experts, reasons);
  fuse_transpose(graph, of_experts, reasons);
  fuse_activation_transpose(graph, of_experts, target, reasons);
  fuse_activation(graph, of_experts, target, options, reasons);
  prune(graph, outputs, true);  // gathered rows need not be permuted too
  fuse_cast_rows(graph, of_experts, reasons);
  if (layer.backward_halves) part_backward(graph);
  if (layer.backward_linears) part_linears(graph);
  prune(graph, outputs, options.keep_intermediates);
  if (layer.dispatch_calls) part_dispatch(graph);
  if (!is_of_group(layer)) fuse_route(graph, layer, target, reasons);
  const bool exchanges = layer.expert_parallel.ranks > 1;
  if (!exchanges) {
    join_shared(graph, described, reasons);
    add_token_checks(graph);
  }
  if (is_of_group(layer)) {
    exchange_tokens(graph, described, options.rank, reasons);
    prune(graph, outputs, options.keep_intermediates);
  }
  if (exchanges) join_shared(graph, described, reasons);
  if (options.measure_gemms) add_elapsed(graph);
  name_recomputed(graph);
  return graph;
}

// Returns the name of the status word that kernels write.
std::string status_name(const Layer& layer, const PlanOptions& options) {
  return is_of_group(layer) ? fmt::format("group_status_{}", options.rank) : "status";
}

// Makes the tokens of a kernel the slots of its group.
void fix_tokens(KernelPlan& kernel) {
  kernel.has_slots = true;
  for (KernelNumber& number : kernel.numbers)
    if (number.dim == CallDim::kTokens) {
      number.dim.reset();
      number.value = kernel.bounds.max_tokens;
    }
}

// Gives the casts of checked weights no more CTAs than an SM surely holds at once. Most launches
// end at once, and tens of thousands of CTAs would take 30 us to do nothing.
void limit_ctas(KernelPlan& kernel) {
  LaunchShape& launch = kernel.launch;
  if (launch.walking_threads_per_sm > 0)
    launch.ctas_per_sm = std::max(launch.walking_threads_per_sm / launch.threads, 1);
}

// Adds a complete kernel for each operation, and the steps between them.
// Errors as of check_target().
Result<void> make_kernels(const Graph& graph, const Layer& layer, const Layer& of_experts,
                          const Target& target, const PlanOptions& options, Plan& plan) {
  const CallBounds of_call = call_bounds(layer), of_slots = call_bounds(of_experts);
  for (const Operation& operation : graph.operations) {
    if (kind_of<Collective>(operation) != nullptr) {
      plan.collectives.push_back(
          make_collective(operation, static_cast<int32_t>(plan.kernels.size())));
      continue;
    }
    const bool is_of_call = operation.tokens == TokensOf::kRank;
    CallBounds bounds = is_of_call ? of_call : of_slots;
    if (operation.tokens == TokensOf::kChoices) {
      bounds.max_tokens *= bounds.top_k;
      bounds.top_k = 1;
    }
    KernelPlan kernel =
        make_kernel(operation, {.bounds = bounds, .target = target, .options = options});
    complete_kernel(kernel, bounds);
    MOEJIT_TRY(check_target(kernel, target, plan.subject));
    if (layer.weight_checks && operation.phase == Phase::kWeights) limit_ctas(kernel);
    explain_tuning(kernel, target, options.tuning);
    if (is_of_call) set_rank(kernel, options.rank, options.timeout_ms);
    const bool runs_in_passes =
        operation.phase == Phase::kForward || operation.phase == Phase::kBackward;
    if (of_call.slots > 0 && !is_of_call && runs_in_passes) fix_tokens(kernel);
    plan.kernels.push_back(std::move(kernel));
  }
  return {};
}

// Sets the bytes of the blocks from the tensor in which all of them arrive, by ranks.
void size_blocks(Plan& plan, int64_t ranks) {
  for (CollectivePlan& step : plan.collectives)
    for (BlockMove& move : step.moves)
      move.bytes = find_tensor(plan, move.destination)->bytes / ranks;
}

// Returns what a group cannot run, beyond what the parser refuses.
Result<void> check_group(const Layer& layer, const PlanOptions& options) {
  const auto refuse = [&](std::string what, std::string hint = {}) {
    return fail(Stage::kPlan, ErrorCode::kUnsupported,
                fmt::format("{}: {}", named_layer(layer), what), std::move(hint));
  };
  const int64_t ranks = layer.expert_parallel.ranks;
  if (options.rank < 0 || options.rank >= ranks)
    return refuse(fmt::format("got rank {}, wanted 0 to {}", options.rank, ranks - 1));
  if (layer.dispatch == Dispatch::kFp8 && layer.scale_sharing_k != 1)
    return refuse(fmt::format("got scale_sharing_k {} with expert_parallel and the dispatch fp8, "
                              "wanted 1",
                              layer.scale_sharing_k),
                  R"(dispatch casts 128 columns at a time; or say "dispatch": "none")");
  return {};
}

}  // namespace

Result<Plan> plan_layer(const Layer& described, const Target& target, const PlanOptions& options) {
  const Layer layer = with_shared_chosen(described);
  if (is_of_group(layer)) MOEJIT_TRY(check_group(layer, options));
  const Layer plain = without_router(described), chosen = without_router(layer);
  const Layer of_experts = is_of_group(layer) ? layer_of_experts(chosen) : chosen;
  MOEJIT_TRY(check_support(of_experts, target));
  Plan plan;  // filled field by field: g++ 12 destroys members of an aggregate that were never
              // constructed
  plan.subject = named_layer(layer);
  plan.target = target;
  plan.bounds = call_bounds(layer);
  plan.reasons = layer_reasons(plain);
  if (has_backward(layer) && !layer.gradients.empty())
    plan.reasons.push_back(gradients_reason(layer));
  plan.layer = described;
  Graph graph = fused_graph(plain, chosen, of_experts, target, options, plan.reasons);
  if (layer.router) route_by_logits(graph, described, status_name(layer, options));
  MOEJIT_TRY(validate(graph));
  MOEJIT_TRY(make_kernels(graph, layer, of_experts, target, options, plan));
  if (options.tuning != nullptr) plan.tuned_for = options.tuning->gpu();
  plan.tensors = make_tensors(graph);
  size_blocks(plan, layer.expert_parallel.ranks);
  const std::vector<const Operation*> operations = kernel_operations(graph);
  plan.workspace_bytes = plan_workspace(plan, operations, options);
  plan.saved_bytes = plan_saved(plan);
  plan.deferred_bytes = plan_deferred(plan);
  plan.quantized_weight_bytes = bytes_of_role(plan, TensorRole::kQuantized);
  make_layer_calls(layer, operations, plan);
  overlap_launches(layer, plan);
  if (is_of_group(layer)) plan.group = place_in_group(plan, options.rank);
  if (options.keep_intermediates)
    plan.reasons.push_back("no workspace is shared because intermediates are kept");
  return plan;
}

}  // namespace moejit::compiler
