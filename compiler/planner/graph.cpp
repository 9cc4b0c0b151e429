// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/graph.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <set>

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

namespace {

using Operations = std::vector<Operation>;
using Names = std::set<std::string, std::less<>>;

constexpr std::array kOutputs = {"dx", "dprobs"};  // of the data half

// Adds the reads of an operation to `wanted` if the data half needs it, and returns whether it
// does.
bool need(Names& wanted, const Operation& operation) {
  const bool is_needed = std::ranges::any_of(
      wanted, [&](const std::string& tensor) { return defines(operation, tensor); });
  // The activation is recomputed along with h1: it is smaller than h1, and is deferred in its
  // place.
  const bool is_made_of_h1 = kind_of<Activate>(operation) != nullptr &&
                             wanted.contains(read_of(operation, "input").tensor);
  // The weights half gets the shape of dy alone, so an operation that reads dy runs in the data
  // half. Gradients of weights that are made of rows of dy themselves need these rows there.
  const bool is_of_weights = kind_of<Wgrad>(operation) || kind_of<BiasGradient>(operation);
  const bool reads_dy = wanted.size() > kOutputs.size() && !is_of_weights && reads(operation, "dy");
  if (!is_needed && !is_made_of_h1 && !reads_dy) return false;
  for (const Port& port : operation.reads) wanted.insert(port.tensor);
  return true;
}

// Permutes dy again if the weights half adds up its rows for a bias. dy has fewer rows than its
// permuted copy, and is deferred for its transpose anyway.
void permute_again(Operations& operations, Operations::iterator weights_half) {
  const auto permutes_dy = [](const Operation& operation) {
    return operation.phase == Phase::kBackward && kind_of<PermutePad>(operation) != nullptr &&
           find_write(operation, "output_probs") == nullptr;
  };
  const auto permute = std::find_if(operations.begin(), weights_half, permutes_dy);
  if (permute == weights_half) return;
  const std::string rows = write_of(*permute, "output").tensor;
  const bool is_added_up =
      std::any_of(weights_half, operations.end(), [&](const Operation& operation) {
        return kind_of<BiasGradient>(operation) != nullptr && reads(operation, rows);
      });
  if (!is_added_up) return;
  Operation again = without_quantize(*permute);
  again.half = BackwardHalf::kWeights;
  operations.insert(weights_half, std::move(again));
}

}  // namespace

void part_backward(Graph& graph) {
  Operations& operations = graph.operations;
  const auto backward = std::ranges::find(operations, Phase::kBackward, &Operation::phase);
  Names wanted(kOutputs.begin(), kOutputs.end());
  for (auto operation = operations.end(); operation != backward;) {
    --operation;
    operation->half = need(wanted, *operation) ? BackwardHalf::kData : BackwardHalf::kWeights;
  }
  const auto weights_half = std::stable_partition(
      backward, operations.end(),
      [](const Operation& operation) { return operation.half == BackwardHalf::kData; });
  if (graph.gathers_tokens) permute_again(operations, weights_half);
}

namespace {

// Finds the groups of grouped rows again for the part of fc1, if it needs nothing else of what
// forward has made. Then the saved block, which has the groups too, may be freed before it.
void split_again(Graph& graph) {
  Operations& operations = graph.operations;
  const auto is_of_fc1 = [](const Operation& one) { return one.half == BackwardHalf::kFc1; };
  const auto split = std::ranges::find_if(
      operations, [](const Operation& one) { return kind_of<SplitRows>(one) != nullptr; });
  const auto fc1 = std::ranges::find_if(operations, is_of_fc1);
  if (split == operations.end() || fc1 == operations.end()) return;
  Operation again = *split;
  std::erase_if(again.writes, [](const Port& port) {
    return port.role != "counts" && port.role != "offs" && port.role != "colwise_offs";
  });
  for (const Operation& one : operations)
    for (const Port& port : one.reads)
      if (is_of_fc1(one) && find_writer(graph, port.tensor, Phase::kForward) != nullptr &&
          !defines(again, port.tensor))
        return;
  again.phase = Phase::kBackward;
  again.half = BackwardHalf::kFc1;
  for (Port& made : again.writes) {
    Value value = *std::ranges::find(graph.values, made.tensor, &Value::name);
    value.name = fmt::format("fc1_{}", made.tensor);
    for (Operation& one : operations)
      for (Port& port : one.reads)
        if (is_of_fc1(one) && port.tensor == made.tensor) port.tensor = value.name;
    made.tensor = value.name;
    graph.values.push_back(std::move(value));
  }
  operations.insert(fc1, std::move(again));
}

}  // namespace

void part_linears(Graph& graph) {
  constexpr std::array kOfFc1 = {"dw1", "dw1_gate", "dw1_up", "db1"};
  for (Operation& operation : graph.operations) {
    if (operation.phase != Phase::kBackward) continue;
    const bool is_of_fc1 = std::ranges::any_of(
        kOfFc1, [&](const char* gradient) { return defines(operation, gradient); });
    operation.half = is_of_fc1 ? BackwardHalf::kFc1 : BackwardHalf::kFc2;
  }
  std::stable_partition(std::ranges::find(graph.operations, Phase::kBackward, &Operation::phase),
                        graph.operations.end(), [](const Operation& operation) {
                          return operation.half == BackwardHalf::kFc2;
                        });
  split_again(graph);
}

namespace {

tl::unexpected<Error> refuse(const Operation& operation, std::string_view verb,
                             std::string_view tensor, std::string_view why) {
  return fail(Stage::kPlan, ErrorCode::kInternal,
              fmt::format("the operation {} {} {}, {}", operation.name, verb, tensor, why));
}

bool is_given(const Value& value) {
  return value.role == TensorRole::kInput || value.role == TensorRole::kWeight ||
         value.role == TensorRole::kState || value.role == TensorRole::kGroup;
}

}  // namespace

Result<void> validate(const Graph& graph) {
  std::set<std::string, std::less<>> there;
  for (const Value& value : graph.values)
    if (is_given(value)) there.insert(value.name);
  const auto is_value = [&](const std::string& tensor) {
    return std::ranges::count(graph.values, tensor, &Value::name) == 1;
  };
  for (const Operation& operation : graph.operations) {
    for (const Port& port : operation.reads)
      for (const std::string& tensor : {port.tensor, port.scale_inv})
        if (!tensor.empty() && !there.contains(tensor))
          return refuse(operation, "reads", tensor, "which no operation before it writes");
    for (const Port& port : operation.writes) {
      for (const std::string& tensor : {port.tensor, port.scale_inv}) {
        if (tensor.empty()) continue;
        if (!is_value(tensor)) return refuse(operation, "writes", tensor, "which is no value");
        if (port.is_repeated && !there.contains(tensor))
          return refuse(operation, "writes", tensor, "again, which nobody has written before");
        there.insert(tensor);
      }
    }
  }
  return {};
}

}  // namespace moejit::compiler
