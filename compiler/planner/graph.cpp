// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/graph.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

// Walks a graph from its end, and collects the operations whose results are needed.
class Pruning {
 public:
  Pruning(const std::vector<std::string>& outputs, bool keeps_intermediates)
      : outputs_(outputs), keeps_intermediates_(keeps_intermediates) {}

  void visit(Operation operation) {
    for (Port& port : operation.writes)
      port.is_for_caller = port.is_intermediate && !is_wanted(port.tensor);
    std::erase_if(operation.writes, [&](const Port& port) {
      if (port.is_intermediate && keeps_intermediates_) return false;
      return port.is_optional && !is_wanted(port.tensor);
    });
    narrow(operation);
    const auto makes_wanted = [&](const Port& port) {
      return !port.is_repeated && is_wanted(port.tensor);
    };
    if (std::ranges::any_of(operation.writes, makes_wanted)) later_.push_back(std::move(operation));
  }
  std::vector<Operation> take() {
    std::ranges::reverse(later_);
    return std::move(later_);
  }

 private:
  // Returns whether the tensor is an output, or is read before another operation redefines it.
  bool is_wanted(std::string_view tensor) const {
    if (std::ranges::count(outputs_, tensor) > 0) return true;
    for (auto next = later_.rbegin(); next != later_.rend(); ++next) {
      if (reads(*next, tensor)) return true;
      if (defines(*next, tensor)) return false;
    }
    return false;
  }

  const std::vector<std::string>& outputs_;
  bool keeps_intermediates_;
  std::vector<Operation> later_;  // the last operation first
};

}  // namespace

void prune(Graph& graph, const std::vector<std::string>& outputs, bool keeps_intermediates) {
  Pruning pruning(outputs, keeps_intermediates);
  for (auto operation = graph.operations.rbegin(); operation != graph.operations.rend();
       ++operation)
    pruning.visit(std::move(*operation));
  graph.operations = pruning.take();
}

std::vector<const Operation*> kernel_operations(const Graph& graph) {
  std::vector<const Operation*> operations;
  for (const Operation& operation : graph.operations)
    if (kind_of<Collective>(operation) == nullptr) operations.push_back(&operation);
  return operations;
}

const Operation* find_writer(const Graph& graph, std::string_view tensor, Phase phase) {
  for (const Operation& operation : graph.operations)
    if (operation.phase == phase && defines(operation, tensor)) return &operation;
  return nullptr;
}

bool is_saved(const Graph& graph, std::string_view tensor) {
  for (const Operation& operation : graph.operations) {
    if (operation.phase != Phase::kBackward) continue;
    if (reads(operation, tensor)) return true;
    if (defines(operation, tensor)) return false;
  }
  return false;
}

}  // namespace moejit::compiler
