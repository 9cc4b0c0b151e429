// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/check/tensor_check.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::check {

// What one rank with all tokens computed: its inputs, and its results with the intermediates h2,
// row_map and dx_permuted.
struct OneRankRun {
  const runtime::TensorMap& inputs;
  const runtime::TensorMap& results;
};

// Returns bf16 [T, H], the rows of tokens that the ranks' sums give: for each rank in ascending
// order the fp32 sum of the token's rows of its experts, in descending order of rows and rounded to
// bf16; these added in fp32 from 0, and rounded once. `rows` is "h2" or "dx_permuted". With one
// rank it is what unpermute makes.
std::vector<uint16_t> partial_sums(const compiler::Layer& layer, const OneRankRun& one,
                                   std::string_view rows);

// Compares the results of all ranks, bit for bit, with what one rank makes of all tokens: y and dx
// with partial_sums() of that rank's rows; dprobs, dw1, dw2, db1 and db2 with that rank's own.
// `ranks` has the results of each rank, `tokens` its T. Names are "y of rank 0".
std::vector<TensorCheck> check_group(const compiler::Layer& layer, const OneRankRun& one,
                                     std::span<const runtime::TensorMap> ranks,
                                     std::span<const int64_t> tokens);

}  // namespace moejit::check
