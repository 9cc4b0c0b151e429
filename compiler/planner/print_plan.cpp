// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/planner/group_report.h"
#include "compiler/support/table.h"

#include <fmt/format.h>
#include <iterator>
#include <tuple>

namespace moejit::compiler {
namespace {

using Buffer = std::back_insert_iterator<std::string>;

std::string shape_text(const TensorPlan& tensor) {
  std::string text = "[";
  for (const Dim& dim : tensor.shape) {
    if (text.size() > 1) text += ", ";
    text += dim.symbol;
  }
  return text + "]";
}

std::string launch_text(const LaunchShape& launch) {
  if (launch.ctas_per_sm == 0)
    return fmt::format("{} CTA x {} threads", launch.max_ctas, launch.threads);
  return fmt::format("{}/SM x {} threads", launch.ctas_per_sm, launch.threads);
}

std::string offset_text(const TensorPlan& tensor) {
  if (tensor.role == TensorRole::kWorkspace) return std::to_string(tensor.workspace_offset);
  if (tensor.role == TensorRole::kSaved) return std::to_string(tensor.saved_offset);
  if (tensor.role == TensorRole::kDeferred) return std::to_string(tensor.deferred_offset);
  return "-";
}

bool is_of(const Layer& layer, const SavedMemory& saved) {
  return std::tie(layer.recipe, layer.recompute) == std::tie(saved.recipe, saved.recompute);
}

std::string role_text(const TensorPlan& tensor) {
  return fmt::format("{}{}", to_string(tensor.role),
                     tensor.is_optional               ? ", optional"
                     : tensor.is_optional_in_backward ? ", optional in backward"
                                                      : "");
}

std::string phase_text(const KernelPlan& kernel) {
  std::string text(kernel.phase);
  for (const std::string_view part : {kernel.half, kernel.dispatch_call})
    if (!part.empty()) text += fmt::format(" {}", part);
  return text;
}

void print_layer(Buffer out, const Plan& plan) {
  const Layer& layer = *plan.layer;
  fmt::format_to(out, "layer \"{}\" for {}: recipe {}, {}\n", layer.name, to_string(plan.target),
                 to_string(layer.recipe), has_backward(layer) ? "forward and backward" : "forward");
  const std::string shared =
      has_shared(layer) ? fmt::format(" and {} shared", layer.shared.experts) : "";
  fmt::format_to(out, "T <= {}  K = {}  E = {} of {}{}  H = {}  I = {}  P = {}\n", layer.max_tokens,
                 layer.top_k, layer.local_experts, layer.experts, shared, layer.hidden,
                 layer.intermediate, layer.max_permuted_rows);
}

// Calls of_step(step) and of_kernel(index) in launch order.
template <typename OfStep, typename OfKernel>
void for_each_step(const Plan& plan, OfStep of_step, OfKernel of_kernel) {
  auto step = plan.collectives.begin();
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    for (; step != plan.collectives.end() && static_cast<size_t>(step->before) == i; ++step)
      of_step(*step);
    of_kernel(i);
  }
}

// Returns "gather packed_ids to choice_ids 512, ..." with the bytes of blocks.
std::string moves_text(const CollectivePlan& step) {
  std::string text;
  for (const BlockMove& move : step.moves)
    text += fmt::format("{}{} {} to {} {}", text.empty() ? "" : ", ", to_string(move.movement),
                        move.source, move.destination, move.bytes);
  return text;
}

void print_kernels(Buffer out, const Plan& plan, bool explain, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"#"},
               {"phase"},
               {"kernel"},
               {"launch"},
               {"shared", kRight},
               {"least bytes", kRight},
               {"GFLOP", kRight}});
  for_each_step(
      plan,
      [&](const CollectivePlan& step) {
        table.add({"-", std::string(step.phase), step.operation, "transport", "",
                   bytes_text(block_bytes(step)), ""});
      },
      [&](size_t i) {
        const KernelPlan& kernel = plan.kernels[i];
        table.add({std::to_string(i), phase_text(kernel), kernel.operation,
                   launch_text(kernel.launch), bytes_text(kernel.launch.shared_bytes),
                   bytes_text(kernel.min_bytes),
                   fmt::format("{:.1f}", 2e-9 * static_cast<double>(kernel.multiply_adds))});
      });
  const std::vector<std::string> lines = table.lines(width);
  auto line = lines.begin();
  fmt::format_to(out, "{}\n", *line++);
  const auto print = [&](const std::string& what, const std::vector<std::string>& reasons) {
    fmt::format_to(out, "{}\n", *line++);
    if (!explain) return;
    fmt::format_to(out, "   {}\n", what);
    for (const std::string& reason : reasons) fmt::format_to(out, "   - {}\n", reason);
  };
  for_each_step(
      plan, [&](const CollectivePlan& step) { print(moves_text(step), step.reasons); },
      [&](size_t i) { print(to_string(plan.kernels[i].spec), plan.kernels[i].reasons); });
}

void print_tensors(Buffer out, const Plan& plan, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"tensor"},
               {"dtype"},
               {"shape"},
               {"layout"},
               {"role"},
               {"bytes", kRight},
               {"offset", kRight},
               {"kernels"}});
  for (const TensorPlan& tensor : plan.tensors)
    table.add({tensor.name, std::string(to_string(tensor.dtype)), shape_text(tensor),
               std::string(to_string(tensor.layout)), role_text(tensor), bytes_text(tensor.bytes),
               offset_text(tensor), fmt::format("{}..{}", tensor.first_use, tensor.last_use)});
  fmt::format_to(out, "\n{}", table.text(width));
}

void print_memory(Buffer out, const Plan& plan) {
  fmt::format_to(out, "\nworkspace {}, quantized weights {}\n", bytes_text(plan.workspace_bytes),
                 bytes_text(plan.quantized_weight_bytes));
  if (!has_backward(*plan.layer)) return;
  fmt::format_to(out, "saved for backward {}\n", bytes_text(plan.saved_bytes));
  if (plan.layer->backward_halves || plan.layer->backward_linears)
    fmt::format_to(out, "deferred between the {} of backward {}\n",
                   plan.layer->backward_halves ? "halves" : "parts",
                   bytes_text(plan.deferred_bytes));
  for (const SavedMemory& other : compare_saved_memory(plan))
    fmt::format_to(out, "  {:<10} with recompute {:<11}{:>10}{}\n", to_string(other.recipe),
                   to_string(other.recompute), bytes_text(other.bytes),
                   is_of(*plan.layer, other) ? "  (this plan)" : "");
}

}  // namespace

std::string print_plan(const Plan& plan, bool explain, int32_t width) {
  std::string text = plan.group ? group_text(plan, width) : "";
  const Buffer out = std::back_inserter(text);
  if (plan.layer) print_layer(out, plan);
  if (plan.operation)
    fmt::format_to(out, "operation {} for {}\n", name_of(plan), to_string(plan.target));
  fmt::format_to(out, "plan digest {}\n\n", plan_digest(plan));
  print_kernels(out, plan, explain, width);
  print_tensors(out, plan, width);
  if (plan.layer)
    print_memory(out, plan);
  else if (plan.workspace_bytes > 0)
    fmt::format_to(out, "\nworkspace {}\n", bytes_text(plan.workspace_bytes));
  if (explain)
    for (const std::string& reason : plan.reasons) fmt::format_to(out, "- {}\n", reason);
  return text;
}

}  // namespace moejit::compiler
