// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operations.h"

#include <set>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// What steps leave each other, and with that what is computed, written and kept for whom. Tensors
// have their names without "_q" and "_scale_inv" here; those that no step writes, which are the
// caller's, count for nothing.

struct StepTensors {
  std::vector<std::string_view> reads;
  std::vector<std::string_view> writes;
};
StepTensors tensors_of(const Step& step, const Layer& layer);

// Tensors that somebody wants, and more and more of those that are needed for them.
class WantedTensors {
 public:
  explicit WantedTensors(std::set<std::string_view> names) : names_(std::move(names)) {}

  bool has(std::string_view tensor) const { return names_.contains(tensor); }
  // Returns whether the step writes one of them; then what it reads is wanted too. To be asked of
  // the last step first.
  bool need(const StepTensors& step);

 private:
  std::set<std::string_view> names_;
};

// Returns the steps that lead to y and to the gradients that the layer computes, in their order. A
// step that would make something else too gives way to one that does not, where there is one.
std::vector<Step> needed_steps(const std::vector<Step>& steps, const Layer& layer);

// Gives each backward step its half and puts the data half first: it has the steps that dx and
// dprobs need, and what is computed again. Does nothing to layers without halves.
void part_backward(std::vector<Step>& steps, const Layer& layer);

// Gives what the data half computes again and defers a tensor of its own, "recomputed_<name>": that
// of the forward pass is in the workspace.
void name_deferred(Plan& plan);

// What becomes of the tensors of a plan's steps.
class Dataflow {
 public:
  Dataflow(const Layer& layer, const std::vector<Step>& steps);

  // Whether a step reads a tensor of another one.
  bool reads(std::string_view tensor) const { return read_.contains(tensor); }
  // Whether the backward pass reads it as the forward pass left it.
  bool saves(std::string_view tensor) const { return saved_.contains(tensor); }
  // Whether the weights half reads it as the data half left it.
  bool defers(std::string_view tensor) const { return deferred_.contains(tensor); }

 private:
  std::set<std::string_view> read_, saved_, deferred_;
};

}  // namespace moejit::compiler
