// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/graph.h"

#include <algorithm>
#include <array>
#include <set>

namespace moejit::compiler {
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
  // half.
  const bool has_data_half = wanted.size() > kOutputs.size();
  if (!is_needed && !is_made_of_h1 && !(has_data_half && reads(operation, "dy"))) return false;
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

}  // namespace moejit::compiler
