// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/fusions.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// The two passes that make an operand of wgrad from rows with a scale for each column of an expert.
// Null if the graph has none.
struct Passes {
  const Operation* scales = nullptr;
  const Operation* cast = nullptr;
};

struct Found {
  std::vector<const Operation*> backward = {};  // the activation's gradient, by rows and in bf16
  Passes of_dh1, of_act;
};

Found find(const Graph& graph) {
  Found found;
  for (const Operation& operation : graph.operations) {
    if (kind_of<ActivationBackward>(operation) != nullptr) found.backward.push_back(&operation);
    if (kind_of<CastColumns>(operation) == nullptr || operation.phase != Phase::kBackward) continue;
    const Passes passes{
        find_writer(graph, read_of(operation, "input_scale_inv").tensor, Phase::kBackward),
        &operation};
    const Operation* const maker =
        find_writer(graph, read_of(operation, "input").tensor, Phase::kBackward);
    if (maker == nullptr) continue;
    if (kind_of<ActivationBackward>(*maker) != nullptr) found.of_dh1 = passes;
    if (kind_of<Activate>(*maker) != nullptr) found.of_act = passes;
  }
  return found;
}

// Returns why the operations stay apart, or an empty string.
std::string columns_apart_reason(const Layer& layer, const Target& target, const Found& found) {
  if (found.of_act.cast == nullptr) return "dw2, which would need act, is not computed";
  const auto makes_gradient = [](const Operation* operation) {
    return find_write(*operation, "output") != nullptr;
  };
  if (std::ranges::none_of(found.backward, makes_gradient)) return "nothing needs dh1";
  if (!layer.fuse_activation_transpose) return "\"fuse_activation_transpose\" is false";
  if (!has_gate(layer.activation)) return "the activation has no gate";
  if (padded_intermediate(layer) != wgrad_intermediate(layer))
    return "halves of rows of dh1 are filled up to whole tiles for wgrad alone";
  const GatedGradientSpec cast =
      fitted(GatedGradientSpec{.casts_columns = true, .pass = GradientPass::kCast}, target);
  if (const int32_t bytes = launch_shape(cast).shared_bytes; bytes > target.shared_memory_bytes)
    return fmt::format("a CTA of {} has {} bytes of shared memory, and tiles of values need {}",
                       to_string(target), target.shared_memory_bytes, bytes);
  if (has_pads_at_the_end_of_tiles(layer)) return {};
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

// Returns an operation with the same reads as the activation's gradient.
Operation pass_of(const Found& found, const Recipe& recipe, GradientPass pass) {
  const Operation& first = *found.backward.front();  // which makes the probability's gradient
  const auto& backward = *kind_of<ActivationBackward>(first);
  Operation operation = first;
  operation.kind = ActivationBackwardTranspose{.local_experts = backward.local_experts,
                                               .columns = backward.columns,
                                               .activation = backward.activation,
                                               .format = recipe.gradients,
                                               .operands = recipe.wgrad_operands,
                                               .pass = pass};
  operation.reads.push_back(read_of(*found.of_act.cast, "output_offs"));
  std::erase_if(operation.writes, [](const Port& port) { return port.role == "output"; });
  return operation;
}

Port optional(std::string role, std::string tensor) {
  return {.role = std::move(role), .tensor = std::move(tensor), .is_optional = true};
}

Operation find_magnitudes(const Found& found, const Recipe& recipe) {
  Operation amax = pass_of(found, recipe, GradientPass::kAmax);
  amax.name = "activation_backward_amax";
  amax.writes = {optional("output", amax_name("dh1"))};
  if (found.of_dh1.cast != nullptr)
    amax.writes.push_back(optional("output_colwise", colwise_amax_name("dh1")));
  amax.writes.push_back(optional("act_colwise", colwise_amax_name("act")));
  return amax;
}

// Returns the pass that finds scales, of magnitudes instead of values.
Operation of_magnitudes(const Passes& passes, const std::string& amax) {
  Operation scales = *passes.scales;
  std::get<ScaleColumns>(scales.kind).has_amax_rows = true;
  *std::ranges::find(scales.reads, "input", &Port::role) = {.role = "input", .tensor = amax};
  scales.reads.push_back(read_of(*passes.cast, "output_offs"));
  return scales;
}

Operation cast_all(const Found& found, const Recipe& recipe) {
  Operation cast = pass_of(found, recipe, GradientPass::kCast);
  cast.name = "activation_backward_quantize_both";
  cast.writes.push_back({.role = "output",
                         .tensor = data_name("dh1", recipe.gradients),
                         .scale_inv = scales_name("dh1", recipe.gradients),
                         .is_optional = true,
                         .is_intermediate = true});
  cast.reads.push_back({.role = "row_amax", .tensor = amax_name("dh1")});
  const auto add_operand = [&](const Passes& passes, std::string role, std::string scales_role) {
    Port operand = write_of(*passes.cast, "output");
    operand.role = std::move(role);
    cast.writes.push_back(std::move(operand));
    Port scales = read_of(*passes.cast, "input_scale_inv");
    scales.role = std::move(scales_role);
    cast.reads.push_back(std::move(scales));
  };
  if (found.of_dh1.cast != nullptr) add_operand(found.of_dh1, "output_colwise", "column_scale_inv");
  add_operand(found.of_act, "act_colwise", "act_column_scale_inv");
  return cast;
}

std::string columns_joined_reason(const Layer& layer, bool casts_dh1) {
  return fmt::format(
      "the activation's gradient and the casts of {} by rows and columns are two kernels, of which "
      "the first finds the largest magnitudes: {} in bf16 {} neither written nor read",
      casts_dh1 ? "dh1 and act" : "act",
      casts_dh1
          ? fmt::format("dh1 [P, {}] and act [P, {}]", 2 * layer.intermediate, layer.intermediate)
          : fmt::format("act [P, {}]", layer.intermediate),
      casts_dh1 ? "are" : "is");
}

}  // namespace

void fuse_activation_columns(Graph& graph, const Layer& layer, const Target& target,
                             std::vector<std::string>& reasons) {
  const Found found = find(graph);
  if (found.of_dh1.cast == nullptr && found.of_act.cast == nullptr) return;
  if (const std::string apart = columns_apart_reason(layer, target, found); !apart.empty()) {
    reasons.push_back("the activation's gradient and the casts of dh1 and act stay apart: " +
                      apart);
    return;
  }
  reasons.push_back(columns_joined_reason(layer, found.of_dh1.cast != nullptr));
  std::vector<Operation> made = {find_magnitudes(found, layer.recipe)};
  std::vector<std::string> replaced;
  for (const Operation* const backward : found.backward) replaced.push_back(backward->name);
  const auto take_scales = [&](const Passes& passes, const std::string& amax) {
    made.push_back(of_magnitudes(passes, amax));
    replaced.push_back(passes.scales->name);
    replaced.push_back(passes.cast->name);
  };
  if (found.of_dh1.cast != nullptr) take_scales(found.of_dh1, colwise_amax_name("dh1"));
  take_scales(found.of_act, colwise_amax_name("act"));
  made.push_back(cast_all(found, layer.recipe));
  const std::string act = read_of(*found.of_act.cast, "input").tensor;
  std::erase_if(graph.operations, [&](const Operation& operation) {
    // The cast makes the operand of act, so nothing needs to make act again.
    const bool makes_act = operation.phase == Phase::kBackward && defines(operation, act);
    return makes_act || std::ranges::count(replaced, operation.name) > 0;
  });
  const std::string gradient = read_of(made.back(), "gradient").tensor;
  const auto dgrad = std::ranges::find_if(
      graph.operations, [&](const Operation& operation) { return defines(operation, gradient); });
  graph.operations.insert(dgrad + 1, made.begin(), made.end());
}

}  // namespace moejit::compiler
