// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/group_graph.h"

#include "compiler/planner/layer_values.h"

#include <algorithm>

namespace moejit::compiler {

void rename(std::vector<Port>& ports, std::string_view from, const std::string& to) {
  for (Port& port : ports)
    for (std::string* const tensor : {&port.tensor, &port.scale_inv})
      if (*tensor == from) *tensor = to;
}

void rename(Operation& operation, std::string_view from, const std::string& to) {
  rename(operation.reads, from, to);
  rename(operation.writes, from, to);
}

Value* find_value(Graph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.values, name, &Value::name);
  return found == graph.values.end() ? nullptr : &*found;
}

void name_slots(Graph& graph, const Layer& layer, const std::string& status) {
  for (Value& value : graph.values)
    for (Dim& dim : value.shape)
      if (dim.symbol == "T") dim.symbol = "S";
  for (const std::string_view name : {"x", "topk_ids", "topk_probs", "y", "dy", "dx", "dprobs"})
    if (Value* const value = find_value(graph, name); value != nullptr)
      value->shape.front() = {"T", layer.max_tokens};
  find_value(graph, "topk_ids")->dtype = dtype_of(layer.topk_ids_dtype);
  find_value(graph, "topk_probs")->dtype = dtype_of(layer.topk_probs_dtype);
  if (Value* const dprobs = find_value(graph, "dprobs"); dprobs != nullptr)
    dprobs->dtype = dtype_of(layer.topk_probs_dtype);
  for (Operation& operation : graph.operations) {
    rename(operation, "topk_ids", "slot_ids");
    rename(operation, "topk_probs", "slot_probs");
    rename(operation, "dprobs", "slot_dprobs");
    rename(operation, "status", status);
    std::erase_if(operation.writes, [](const Port& port) { return port.role == "saved_tokens"; });
  }
}

}  // namespace moejit::compiler
