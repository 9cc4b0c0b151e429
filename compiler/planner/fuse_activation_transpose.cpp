// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// The operations that may be joined; null if the graph does not have one.
struct Candidates {
  const Operation* backward = nullptr;  // the activation's gradient
  const Operation* transpose_dh1 = nullptr;
  const Operation* transpose_act = nullptr;
};

Candidates find_candidates(const Graph& graph, const Recipe& recipe) {
  Candidates found;
  for (const Operation& operation : graph.operations) {
    if (kind_of<ActivationBackward>(operation) != nullptr) found.backward = &operation;
    if (kind_of<Transpose>(operation) == nullptr) continue;
    const std::string& rows = read_of(operation, "input").tensor;
    if (rows == data_name("dh1", recipe.gradients)) found.transpose_dh1 = &operation;
    if (rows == data_name("act", recipe.activations)) found.transpose_act = &operation;
  }
  return found;
}

bool has_pads_at_the_end_of_tiles(const Layer& layer) {
  return layer.splits_alignment % 128 == 0 || 128 % layer.splits_alignment == 0;
}

// Returns why the operations stay apart, or an empty string.
std::string apart_reason(const Layer& layer, const Candidates& found) {
  if (found.transpose_act == nullptr) return "dw2, which would need act, is not computed";
  if (found.backward == nullptr) return "nothing needs dh1";
  if (!layer.fuse_activation_transpose) return "\"fuse_activation_transpose\" is false";
  if (!has_gate(layer.activation)) return "the activation has no gate";
  if (layer.scale_sharing_k > 1)
    return fmt::format("{0} neighboring blocks of dh1 share a scale, and lie in tiles of {0} CTAs",
                       layer.scale_sharing_k);
  if (has_pads_at_the_end_of_tiles(layer)) return {};
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

std::string joined_reason(const Layer& layer, bool transposes_dh1) {
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

Operation join(const Candidates& found, const Recipe& recipe) {
  const auto& backward = *kind_of<ActivationBackward>(*found.backward);
  Operation joined = *found.backward;
  joined.name = "activation_backward_quantize_transpose";
  joined.kind = ActivationBackwardTranspose{.local_experts = backward.local_experts,
                                            .columns = backward.columns,
                                            .activation = backward.activation,
                                            .format = backward.format};
  joined.reads.push_back(read_of(*found.transpose_act, "output_offs"));
  std::erase_if(joined.writes, [](const Port& port) { return port.role == "output"; });
  joined.writes.push_back({.role = "output",
                           .tensor = data_name("dh1", recipe.gradients),
                           .scale_inv = scales_name("dh1", recipe.gradients),
                           .is_optional = true,
                           .is_intermediate = true});
  const auto add_transposed = [&](const Operation& transpose, std::string role) -> Port& {
    joined.writes.push_back(write_of(transpose, "output"));
    joined.writes.back().role = std::move(role);
    return joined.writes.back();
  };
  if (found.transpose_dh1 != nullptr)
    add_transposed(*found.transpose_dh1, "output_colwise").is_optional = true;
  add_transposed(*found.transpose_act, "act_colwise");
  return joined;
}

}  // namespace

void fuse_activation_transpose(Graph& graph, const Layer& layer,
                               std::vector<std::string>& reasons) {
  const Candidates found = find_candidates(graph, layer.recipe);
  if (found.transpose_dh1 == nullptr && found.transpose_act == nullptr) return;
  if (const std::string apart = apart_reason(layer, found); !apart.empty()) {
    reasons.push_back(fmt::format(
        "the activation's gradient and the transposes of dh1 and act stay apart: {}", apart));
    return;
  }
  reasons.push_back(joined_reason(layer, found.transpose_dh1 != nullptr));
  const Operation joined = join(found, layer.recipe);
  const std::string act = read_of(*found.transpose_act, "input").tensor;
  std::vector<std::string> replaced = {found.backward->name, found.transpose_act->name};
  if (found.transpose_dh1 != nullptr) replaced.push_back(found.transpose_dh1->name);
  std::erase_if(graph.operations, [&](const Operation& operation) {
    // The joined operation transposes act, so nothing needs to make act again.
    const bool makes_act = operation.phase == Phase::kBackward && defines(operation, act);
    return makes_act || std::ranges::count(replaced, operation.name) > 0;
  });
  const std::string& gradient = read_of(joined, "gradient").tensor;
  const auto makes_gradient = [&](const Operation& operation) {
    return defines(operation, gradient);
  };
  const auto dgrad = std::ranges::find_if(graph.operations, makes_gradient);
  graph.operations.insert(dgrad + 1, joined);
}

}  // namespace moejit::compiler
