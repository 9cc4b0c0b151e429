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

// What one rank with all tokens computed: its inputs and its results. The results include the
// intermediates h2, row_map and dx_permuted.
struct OneRankRun {
  const runtime::TensorMap& inputs;
  const runtime::TensorMap& results;
};

// Returns bf16 [T, H]: rows of tokens as the ranks' sums give them. Each rank adds the token's rows
// of its own experts in fp32, in descending order of rows, and rounds the sum to bf16. These sums
// are then added in fp32 from 0, in ascending order of ranks, and rounded once. `tokens` has T of
// each rank, on which the tokens' shared experts are. `rows` is "h2" or "dx_permuted". With one
// rank the result equals what unpermute makes.
std::vector<uint16_t> partial_sums(const compiler::Layer& layer, const OneRankRun& one,
                                   std::span<const int64_t> tokens, std::string_view rows);

// Compares the results of all ranks, bit for bit, with what one rank makes of all tokens. y and dx
// are compared with partial_sums() of that rank's rows. dprobs, dshared_probs, dw1, dw2, db1 and
// db2 are compared with that rank's own results. Gradients of shared experts are left out: a
// rank's gradients are sums over its own tokens alone. `ranks` has the results of each rank,
// `tokens` its T. Checks have names like "y of rank 0".
std::vector<TensorCheck> check_group(const compiler::Layer& layer, const OneRankRun& one,
                                     std::span<const runtime::TensorMap> ranks,
                                     std::span<const int64_t> tokens);

}  // namespace moejit::check
