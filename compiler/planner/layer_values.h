// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Return the names of a layer's tensors in a format: data is "<name>", or "<name>_q" if it is
// quantized, with scales "<name>_scale_inv" unless values are recovered.
std::string data_name(std::string_view name, const Format& format);
std::string scales_name(std::string_view name, const Format& format);

// Return the names of an expert's scales, by which values are multiplied, and of the largest
// magnitudes from which scales are found.
std::string scale_name(std::string_view name);
std::string amax_name(std::string_view name);
// Returns the name of the largest magnitudes of 128 tokens of each column of an operand of wgrad.
std::string colwise_amax_name(std::string_view name);

// The state of delayed scaling of one linear layer and pass. It has the largest magnitudes of steps
// and the scales that follow from them, each with some columns for every expert.
struct StateNames {
  std::string amax_history;  // [L, columns]
  std::string scale;         // [columns]
};
// Returns the names of the state of "fc1" or "fc2", of forward tensors or of gradients.
StateNames state_names(std::string_view linear, Pass pass);

// The place of an operand in the state: its linear layer, its pass, and its columns.
struct StateOf {
  std::string_view linear;
  Pass pass = Pass::kForward;
  AmaxColumns columns = {};
};
// Returns the names of the tensors that hold a gradient: one, or of dw1 one each for gate and up.
std::vector<std::string> tensors_of(const Layer& layer, Gradient gradient);

// Returns the place of "permuted", "act", "w1", "w2", "grad_permuted" or "dh1".
StateOf state_of(std::string_view name);

// Returns how many columns each expert has in the state of a pass. As in Transformer Engine,
// forward has input, weight and output, backward the gradients of output and input. Two of these
// are not used here: output of forward, and gradient of an input.
int32_t state_columns(Pass pass);

// Returns the spec of the check whether a layer's weights have changed.
WeightCheckSpec weight_check_of(const Layer& layer);

// Returns the columns of gate or up in the rows of dh1 from which wgrad's operand is made. wgrad
// sorts rows of gate and up, which alternate in dw1, by whole tiles. Quantized rows have as many
// columns, unless each has one scale.
int32_t wgrad_intermediate(const Layer& layer);

// Returns whether wgrad's groups of columns start elsewhere than the groups of rows. Quantized
// columns start at multiples of 128; without quantization columns are rows.
bool has_colwise_offs(const Layer& layer);

// Returns every value that operations of such a layer may touch, in the order in which tensors are
// listed and laid out. Rows that GEMMs multiply occur in each format that the recipe has.
std::vector<Value> layer_values(const Layer& layer);

}  // namespace moejit::compiler
