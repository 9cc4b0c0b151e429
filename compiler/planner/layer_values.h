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

// Return the names of an expert's scales, which values are multiplied by, and of the largest
// magnitudes of what they are found from.
std::string scale_name(std::string_view name);
std::string amax_name(std::string_view name);

// Return the element types of topk_ids, and of topk_probs and dprobs.
DType topk_ids_dtype(const Layer& layer);
DType topk_probs_dtype(const Layer& layer);

// Returns the columns of gate or up in rows of dh1 that wgrad's operand is made of: wgrad sorts
// rows of gate and up, which alternate in dw1, by whole tiles. Quantized rows have as many columns,
// unless each has one scale.
int32_t wgrad_intermediate(const Layer& layer);

// Returns whether wgrad's groups of columns start elsewhere than the groups of rows. Quantized
// columns start at multiples of 128; without quantization columns are rows.
bool has_colwise_offs(const Layer& layer);

// Returns every value that operations of such a layer may touch, in the order in which tensors are
// listed and laid out. Rows that GEMMs multiply occur in each format that the recipe has.
std::vector<Value> layer_values(const Layer& layer);

}  // namespace moejit::compiler
