// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns whether the operation casts rows of experts in their order, nobody wants columns, and the
// scales depend on nothing else.
bool casts_rows_alone(const Operation& operation) {
  const auto* const cast = kind_of<CastBlocks>(operation);
  return cast != nullptr && !has_two_levels(cast->format) && cast->matrix_rows == 0 &&
         cast->source == RowSource::kInOrder && find_write(operation, "output_colwise") == nullptr;
}

// Returns whether a kernel that computes gradients can cast them on the way. All columns of a group
// of 32 must be in the registers of a warp.
bool can_cast(const Operation& maker) {
  const auto* const backward = kind_of<ActivationBackward>(maker);
  return backward != nullptr && !is_quantized(backward->format) && !backward->is_interleaved;
}

bool has_other_reader(const Graph& graph, const Operation& reader, const std::string& tensor) {
  return std::ranges::any_of(graph.operations, [&](const Operation& operation) {
    return operation.name != reader.name && reads(operation, tensor);
  });
}

}  // namespace

void fuse_cast_rows(Graph& graph, const Layer& /*layer*/, std::vector<std::string>& reasons) {
  const auto cast = std::ranges::find_if(graph.operations, casts_rows_alone);
  if (cast == graph.operations.end()) return;
  const std::string rows = read_of(*cast, "input").tensor;
  const auto maker = std::ranges::find_if(graph.operations, [&](const Operation& operation) {
    return can_cast(operation) && defines(operation, rows);
  });
  if (maker == graph.operations.end() || has_other_reader(graph, *cast, rows)) return;
  std::get<ActivationBackward>(maker->kind).format = kind_of<CastBlocks>(*cast)->format;
  std::get<ActivationBackward>(maker->kind).format.scale = ScaleOf::k1x32;
  maker->name += "_quantize";
  *std::ranges::find(maker->writes, "output", &Port::role) = write_of(*cast, "output");
  graph.operations.erase(cast);
  reasons.push_back("the activation's gradient is cast by rows in registers: nobody wants " + rows +
                    " by columns");
}

namespace {

// Returns the operation that casts and permutes the rows which a transpose of backward reads; null
// for other operations.
const Operation* find_cast(const Graph& graph, const Operation& transpose) {
  if (kind_of<Transpose>(transpose) == nullptr || transpose.phase == Phase::kForward)
    return nullptr;
  const std::string& rows = read_of(transpose, "input").tensor;
  for (const Operation& operation : graph.operations) {
    const auto* const permute = kind_of<PermutePad>(operation);
    if (permute != nullptr && permute->quantize && defines(operation, rows) &&
        find_read(operation, "expert_scales") != nullptr)
      return &operation;
  }
  return nullptr;
}

// Returns a transpose that casts rows of tokens itself.
Operation gathered(const Operation& cast, const Operation& transpose) {
  const auto& permute = *kind_of<PermutePad>(cast);
  Operation joined{.name = fmt::format("permute_{}", transpose.name),
                   .kind = CastTranspose{.local_experts = permute.local_experts,
                                         .columns = permute.columns,
                                         .format = permute.quantize->format,
                                         .zeroes_rows = find_read(cast, "probs") != nullptr},
                   .reads = {read_of(cast, "input"),
                             {.role = "row_tokens", .tensor = "row_tokens"},
                             read_of(cast, "counts"),
                             read_of(cast, "offs"),
                             read_of(transpose, "output_offs"),
                             read_of(cast, "expert_scales")},
                   .writes = {write_of(transpose, "output")},
                   .phase = transpose.phase};
  joined.writes.back().role = "output_colwise";
  return joined;
}

// Makes it do the cast, too, and puts it in the place of the cast.
void join(Operation& joined, const Operation& cast) {
  joined.name = fmt::format("quantize_{}", joined.name);
  joined.writes.insert(joined.writes.begin(), cast.writes.begin(), cast.writes.end());
  std::get<CastTranspose>(joined.kind).amax = kind_of<PermutePad>(cast)->amax;
}

// Returns how many bytes a column spares if a transpose reads tokens in bf16 instead of permuted
// codes.
int64_t bytes_not_read(const Layer& layer) {
  return std::min(layer.max_tokens * layer.top_k, layer.max_permuted_rows) - 2 * layer.max_tokens;
}

std::string cast_apart_reason(const Layer& layer) {
  if (!layer.fuse_transpose) return "\"fuse_transpose\" is false";
  if (has_pads_at_the_end_of_tiles(layer)) return {};
  return fmt::format("groups aligned to {} rows have pad rows in tiles without others",
                     layer.splits_alignment);
}

}  // namespace

void fuse_permuted_cast(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  if (const std::string apart = cast_apart_reason(layer); !apart.empty()) {
    reasons.push_back("permute and transpose stay apart: " + apart);
    return;
  }
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation* const found = find_cast(graph, graph.operations[i]);
    if (found == nullptr) continue;
    const bool is_of_backward = found->phase == Phase::kBackward;
    if (!is_of_backward && (!layer.recipe.has_history || bytes_not_read(layer) <= 0)) continue;
    Operation made = gathered(*found, graph.operations[i]);
    graph.gathers_tokens = true;
    if (!is_of_backward) {
      graph.operations[i] = std::move(made);
      reasons.push_back(fmt::format(
          "permute and the cast of x by columns are one kernel: backward reads x [T, {0}] again, "
          "and permuted_q [P, {0}] is not read for wgrad{1}",
          layer.hidden, layer.recompute == Recompute::kNone ? " and not saved" : ""));
      continue;
    }
    join(made, *found);
    const auto cast = graph.operations.begin() + (found - graph.operations.data());
    *cast = std::move(made);
    graph.operations.erase(graph.operations.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
    reasons.push_back(fmt::format(
        "the cast of dy, permute and transpose are one kernel: scales are known before it, so "
        "grad_permuted_q [P, {}] is not read for wgrad",
        layer.hidden));
  }
  if (graph.gathers_tokens) tell_tokens(graph);
}

}  // namespace moejit::compiler
