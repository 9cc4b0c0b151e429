// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Operations = std::vector<Operation>;

// The operations that may be joined; null or none if the graph does not have one.
struct Candidates {
  // The activation's gradient: by rows, and in bf16 where operands are cast from values.
  std::vector<const Operation*> backward = {};
  // The operations that make operands of wgrad from dh1 and act: transposes, or casts by columns.
  const Operation* of_dh1 = nullptr;
  const Operation* of_act = nullptr;
};

bool makes_operand(const Operation& operation) {
  return kind_of<Transpose>(operation) != nullptr || kind_of<QuantizeColumns>(operation) != nullptr;
}

// Returns whether the operation computes gradients to store them, rather than their magnitudes.
bool makes_gradient(const Operation& operation) {
  const auto* const backward = kind_of<ActivationBackward>(operation);
  return backward != nullptr && !backward->finds_amax;
}

Candidates find_candidates(const Graph& graph) {
  Candidates found;
  for (const Operation& operation : graph.operations) {
    if (makes_gradient(operation)) found.backward.push_back(&operation);
    if (!makes_operand(operation)) continue;
    const std::string& rows = read_of(operation, "input").tensor;
    for (const Operation& maker : graph.operations) {
      if (!defines(maker, rows)) continue;
      if (kind_of<ActivationBackward>(maker) != nullptr) found.of_dh1 = &operation;
      if (kind_of<Activate>(maker) != nullptr) found.of_act = &operation;
    }
  }
  return found;
}

// Returns whether rows and columns of dh1 are cast from the same values by the same rule. Also true
// if its columns are made from its rows.
bool has_one_cast(const Recipe& recipe) {
  const Format &rows = recipe.gradients, &columns = recipe.wgrad_operands;
  return !is_cast_from_values(columns) ||
         (has_scales(rows) && rows.rounds_to_bf16 && rows.epsilon == columns.epsilon);
}

// Returns why the operations stay apart, or an empty string.
std::string transpose_apart_reason(const Layer& layer, const Candidates& found) {
  if (found.of_act == nullptr) return "dw2, which would need act, is not computed";
  if (found.backward.empty()) return "nothing needs dh1";
  if (!layer.fuse_activation_transpose) return "\"fuse_activation_transpose\" is false";
  if (!has_gate(layer.activation)) return "the activation has no gate";
  if (!has_one_cast(layer.recipe)) return "rows of dh1 are not cast as its columns are";
  if (layer.scale_sharing_k > 1)
    return fmt::format("{0} neighboring blocks of dh1 share a scale, and lie in tiles of {0} CTAs",
                       layer.scale_sharing_k);
  if (has_pads_at_the_end_of_tiles(layer)) return {};
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

std::string joined_casts_reason(const Layer& layer, bool casts_dh1) {
  return fmt::format(
      "the activation's gradient and the casts of {} by columns are one kernel: {} in bf16 {} "
      "neither written nor read",
      casts_dh1 ? "dh1 and act" : "act",
      casts_dh1
          ? fmt::format("dh1 [P, {}] and act [P, {}]", 2 * layer.intermediate, layer.intermediate)
          : fmt::format("act [P, {}]", layer.intermediate),
      casts_dh1 ? "are" : "is");
}

std::string transpose_joined_reason(const Layer& layer, bool transposes_dh1) {
  if (is_cast_from_values(layer.recipe.wgrad_operands))
    return joined_casts_reason(layer, transposes_dh1);
  const std::string_view verb = layer.recompute == Recompute::kMoeExpert ? "recomputed" : "saved";
  if (transposes_dh1)
    return fmt::format(
        "the activation's gradient and the transposes of dh1 and act are one kernel: dh1_q [P, {}] "
        "and act_q [P, {}] are not read again, and act_q is not {}",
        2 * layer.intermediate, layer.intermediate, verb);
  return fmt::format(
      "the activation's gradient and the transpose of act are one kernel: act_q [P, {}] is not "
      "read again, and not {}",
      layer.intermediate, verb);
}

// Adds what casts with known scales need beside the ports of the activation's gradient. That
// operation has no output, no scales and no state where nobody wants its rows.
void add_known_scales(Operation& joined, const ActivationBackward& backward) {
  joined.reads.push_back({.role = "act_expert_scales", .tensor = scale_name("act")});
  if (find_write(joined, "amax") != nullptr)
    std::get<ActivationBackwardTranspose>(joined.kind).amax = backward.amax;
}

Operation join(const Candidates& found, const Recipe& recipe) {
  const Operation& first = *found.backward.front();  // which makes the probability's gradient
  const auto& backward = *kind_of<ActivationBackward>(first);
  Operation joined = first;
  joined.name = is_cast_from_values(recipe.wgrad_operands)
                    ? "activation_backward_quantize_both"
                    : "activation_backward_quantize_transpose";
  joined.kind = ActivationBackwardTranspose{.local_experts = backward.local_experts,
                                            .columns = backward.columns,
                                            .activation = backward.activation,
                                            .format = recipe.gradients,
                                            .operands = recipe.wgrad_operands};
  joined.reads.push_back(read_of(*found.of_act, "output_offs"));
  if (has_expert_scale(recipe.gradients)) {
    add_known_scales(joined, backward);
  } else {
    std::erase_if(joined.writes, [](const Port& port) { return port.role == "output"; });
    joined.writes.push_back({.role = "output",
                             .tensor = data_name("dh1", recipe.gradients),
                             .scale_inv = scales_name("dh1", recipe.gradients),
                             .is_optional = true,
                             .is_intermediate = true});
  }
  const auto add_operand = [&](const Operation& maker, std::string role) -> Port& {
    joined.writes.push_back(write_of(maker, "output"));
    joined.writes.back().role = std::move(role);
    return joined.writes.back();
  };
  if (found.of_dh1 != nullptr) add_operand(*found.of_dh1, "output_colwise").is_optional = true;
  add_operand(*found.of_act, "act_colwise");
  return joined;
}

// Moves the operation that finds the scales of dh1, if there is one, behind the operation `dgrad`.
// Returns the last operation that the cast has to follow.
Operations::iterator move_scales(Operations& operations, Operations::iterator dgrad) {
  const auto finds_scales = [](const Operation& operation) {
    const auto* const backward = kind_of<ActivationBackward>(operation);
    return (backward != nullptr && backward->finds_amax) ||
           (kind_of<ExpertScales>(operation) != nullptr && defines(operation, scale_name("dh1")));
  };
  const auto later = std::stable_partition(dgrad + 1, operations.end(), finds_scales);
  return later - 1;
}

}  // namespace

bool has_pads_at_the_end_of_tiles(const Layer& layer) {
  return layer.splits_alignment % 128 == 0 || 128 % layer.splits_alignment == 0;
}

void fuse_activation_transpose(Graph& graph, const Layer& layer, const Target& target,
                               std::vector<std::string>& reasons) {
  if (layer.recipe.wgrad_operands.scale == ScaleOf::kColumn)
    return fuse_activation_columns(graph, layer, target, reasons);
  const Candidates found = find_candidates(graph);
  if (found.of_dh1 == nullptr && found.of_act == nullptr) return;
  if (const std::string apart = transpose_apart_reason(layer, found); !apart.empty()) {
    reasons.push_back(fmt::format(
        "the activation's gradient and the {} of dh1 and act stay apart: {}",
        is_cast_from_values(layer.recipe.wgrad_operands) ? "casts" : "transposes", apart));
    return;
  }
  reasons.push_back(transpose_joined_reason(layer, found.of_dh1 != nullptr));
  const Operation joined = join(found, layer.recipe);
  const std::string act = read_of(*found.of_act, "input").tensor;
  std::vector<std::string> replaced = {found.of_act->name};
  if (found.of_dh1 != nullptr) replaced.push_back(found.of_dh1->name);
  for (const Operation* const backward : found.backward) replaced.push_back(backward->name);
  std::erase_if(graph.operations, [&](const Operation& operation) {
    // The joined operation makes the operand of act, so nothing needs to make act again.
    const bool makes_act = operation.phase == Phase::kBackward && defines(operation, act);
    return makes_act || std::ranges::count(replaced, operation.name) > 0;
  });
  const std::string& gradient = read_of(joined, "gradient").tensor;
  const auto dgrad = std::ranges::find_if(
      graph.operations, [&](const Operation& operation) { return defines(operation, gradient); });
  graph.operations.insert(move_scales(graph.operations, dgrad) + 1, joined);
}

}  // namespace moejit::compiler
