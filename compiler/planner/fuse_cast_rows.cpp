// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>

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

}  // namespace moejit::compiler
