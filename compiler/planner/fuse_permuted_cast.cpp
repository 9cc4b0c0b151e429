// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns the transpose of what an operation that casts permuted rows makes, in the same phase, or
// null.
const Operation* find_transpose(const Graph& graph, const Operation& cast) {
  const auto* const permute = kind_of<PermutePad>(cast);
  const Port* const output = find_write(cast, "output");
  if (permute == nullptr || output == nullptr || !permute->quantize ||
      find_read(cast, "expert_scales") == nullptr)
    return nullptr;
  for (const Operation& operation : graph.operations)
    if (operation.phase == cast.phase && kind_of<Transpose>(operation) != nullptr &&
        read_of(operation, "input").tensor == output->tensor)
      return &operation;
  return nullptr;
}

Operation join(const Operation& cast, const Operation& transpose) {
  const auto& permute = *kind_of<PermutePad>(cast);
  Operation joined{.name = fmt::format("quantize_permute_{}", transpose.name),
                   .kind = CastTranspose{.local_experts = permute.local_experts,
                                         .columns = permute.columns,
                                         .format = permute.quantize->format,
                                         .amax = permute.amax},
                   .reads = {read_of(cast, "input"),
                             {.role = "row_tokens", .tensor = "row_tokens"},
                             read_of(cast, "counts"),
                             read_of(cast, "offs"),
                             read_of(transpose, "output_offs"),
                             read_of(cast, "expert_scales")},
                   .writes = cast.writes,
                   .phase = cast.phase};
  joined.writes.push_back(write_of(transpose, "output"));
  joined.writes.back().role = "output_colwise";
  return joined;
}

std::string apart_reason(const Layer& layer) {
  if (!layer.recipe.has_history) return "a token's rows have other codes with each expert";
  if (!layer.fuse_transpose) return "\"fuse_transpose\" is false";
  if (has_pads_at_the_end_of_tiles(layer)) return {};
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

}  // namespace

// Of the forward pass, whose rows backward transposes, no operation knows the token of a row before
// the rows are permuted.
void fuse_permuted_cast(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  if (const std::string apart = apart_reason(layer); !apart.empty()) {
    reasons.push_back("permute and transpose stay apart: " + apart);
    return;
  }
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation* const transpose = find_transpose(graph, graph.operations[i]);
    if (transpose == nullptr || graph.operations[i].phase == Phase::kForward) continue;
    const std::string replaced = transpose->name;
    graph.operations[i] = join(graph.operations[i], *transpose);
    std::erase_if(graph.operations,
                  [&](const Operation& operation) { return operation.name == replaced; });
    graph.gathers_tokens = true;
    reasons.push_back(fmt::format(
        "the cast of dy, permute and transpose are one kernel: scales are known before the values, "
        "so grad_permuted_q [P, {}] is not read for wgrad",
        layer.hidden));
  }
  if (graph.gathers_tokens) tell_tokens(graph);
}

}  // namespace moejit::compiler
