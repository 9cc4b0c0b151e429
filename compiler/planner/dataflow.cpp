// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/dataflow.h"

#include <algorithm>
#include <iterator>

namespace moejit::compiler {
namespace {

// What steps do not make if nobody wants it, and the operation that does the rest.
struct LesserOperation {
  Operation operation;
  std::string_view unwanted;
  Operation instead;
};
constexpr LesserOperation kLesserOperations[] = {
    {Operation::kQuantizePermutePadGrad, "grad_permuted", Operation::kQuantizeDy},
    {Operation::kActivationBackward, "dh1", Operation::kActivationDprobs},
    {Operation::kActivationBackwardQuantize, "dh1", Operation::kActivationDprobs},
    {Operation::kUnpermuteGrad, "dx", Operation::kUnpermuteDprobs},
    {Operation::kUnpermuteGrad, "dprobs", Operation::kUnpermuteDx},
};

}  // namespace

bool WantedTensors::need(const StepTensors& step) {
  if (std::ranges::none_of(step.writes, [&](std::string_view name) { return has(name); }))
    return false;
  names_.insert(step.reads.begin(), step.reads.end());
  return true;
}

std::vector<Step> needed_steps(const std::vector<Step>& steps, const Layer& layer) {
  std::set<std::string_view> outputs = {"y"};
  for (const Gradient gradient : gradients_of(layer)) outputs.insert(to_string(gradient));
  WantedTensors wanted(std::move(outputs));
  std::vector<Step> needed;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    Step lesser = *step;
    for (const LesserOperation& entry : kLesserOperations)
      if (step->operation == entry.operation && !wanted.has(entry.unwanted))
        lesser.operation = entry.instead;
    if (wanted.need(tensors_of(lesser, layer))) needed.push_back(lesser);
  }
  std::ranges::reverse(needed);
  return needed;
}

Dataflow::Dataflow(const Layer& layer, const std::vector<Step>& steps) {
  std::set<std::string_view> of_forward, of_backward, of_weights_half;  // what they have written
  for (const Step& step : steps) {
    const StepTensors tensors = tensors_of(step, layer);
    const bool is_backward = step.phase == Phase::kBackward;
    const bool is_weights_half = step.half == BackwardHalf::kWeights;
    for (const std::string_view name : tensors.reads) {
      read_.insert(name);
      if (!is_backward) continue;
      if (!of_backward.contains(name) && of_forward.contains(name)) saved_.insert(name);
      if (is_weights_half && of_backward.contains(name) && !of_weights_half.contains(name))
        deferred_.insert(name);
    }
    (is_backward ? of_backward : of_forward).insert(tensors.writes.begin(), tensors.writes.end());
    if (is_weights_half) of_weights_half.insert(tensors.writes.begin(), tensors.writes.end());
  }
}

}  // namespace moejit::compiler
