// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Names of a layer's tensors in a format: "<name>", or "<name>_q" beside "<name>_scale_inv".
std::string data_name(std::string_view name, const Format& format);
std::string scales_name(std::string_view name, const Format& format);

// Element types of topk_ids, and of topk_probs and dprobs.
DType topk_ids_dtype(const Layer& layer);
DType topk_probs_dtype(const Layer& layer);

// Returns whether wgrad's groups of columns start elsewhere than the groups of rows: they start at
// multiples of 128, and where nothing is quantized columns are rows.
bool has_colwise_offs(const Layer& layer);

// Returns every value that operations of such a layer may touch, in the order in which tensors are
// listed and laid out. Rows that GEMMs multiply are there in each format that the recipe has.
std::vector<Value> layer_values(const Layer& layer);

}  // namespace moejit::compiler
