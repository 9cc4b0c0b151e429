// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/planner/operations/casts.h"

#include <cstdint>
#include <optional>

namespace moejit::compiler {

struct Operation;

// Counts the tokens of each group and gives each choice of an expert its permuted row. Reads
// topk_ids [T, K]. Writes counts [E], offs [E + 1], row_map [T, K] and status; also colwise_offs [E
// + 1], if groups of columns start elsewhere than groups of rows, and saved_tokens [1], if wanted.
// Or reads routing_map [T, E], bytes.
struct Route {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 1;
  DType topk_ids = DType::kI32;  // or kI64
  bool ignores_foreign = false;  // whether ids at or above local_experts are like -1
};

// Tells what Route tells, of rows that lie in the order of experts. Reads tokens_per_expert [E].
struct SplitRows {
  int32_t local_experts = 0;
  int32_t splits_alignment = 1;
  DType tokens_per_expert = DType::kI32;  // or kI64
};

// Moves the rows of tokens to their experts' groups, and fills up the groups with zeros. Reads
// input [T, columns], row_map, counts and offs, and probs [T, K] if it moves probabilities. Writes
// output [P, columns]; output_probs [P] and row_tokens [P], the token of each row, if wanted. If it
// quantizes, it also writes the quantized rows kept_output [T, columns] if wanted. With scales of
// experts it reads expert_scales [E] instead, and casts a row for each destination. With
// `finds_amax` the output is the largest magnitudes of its rows [P, ceil(columns / 512)], and
// nothing else is written.
struct PermutePad {
  int32_t columns = 0;
  int32_t experts = 0;  // of the whole model, over which choices are spread
  int32_t local_experts = 0;
  int32_t top_k = 0;
  DType probs = DType::kF32;                  // type of the probabilities that move; kF32 or kBF16
  std::optional<QuantizeRows> quantize = {};  // how rows are quantized on the way, if they are
  bool has_two_levels = false;                // whether input and output are e2m1 with their scales
  bool finds_amax = false;
  AmaxColumns amax = {};  // columns of a state amax, which a cast raises to largest magnitudes
};

// Joins an operation that permutes rows with the one that quantizes them.
Operation with_quantize(const Operation& permute, const Operation& quantize);
// Returns such a joined operation without the quantized rows in the order of tokens.
Operation without_kept_rows(const Operation& permute);
// Returns an operation that permutes rows that such a joined operation, or an operation before it,
// has quantized.
Operation without_quantize(const Operation& permute);

// Reduces the operation to quantizing rows if it has no output.
void narrow(Operation& operation, const PermutePad& permute);

// Routes and permutes, for few choices: reads and writes what both do, under the same roles.
struct RoutePermute {
  Route route;
  PermutePad permute;
};

// Returns whether the two can be joined: the histograms fit beside as many CTAs as move rows.
bool can_route_permute(const Operation& route, const Operation& permute, const Target& target);
// Joins an operation that permutes rows with the one that routes them.
Operation with_route(const Operation& permute, const Operation& route);

// Adds up the permuted rows of each token, and gathers the gradients of its probabilities. Reads
// row_map; input [P, columns] for output [T, columns]; dprobs_blocks [P, ceil(I / 128)] for dprobs
// [T, K]. If b2 is multiplied by the probability it reads bias_dprobs [P] too. Writes output and
// dprobs, each of them only if wanted.
struct Unpermute {
  int32_t columns = 0;
  int32_t top_k = 0;
  int32_t dprobs_columns = 0;  // blocks of each row in dprobs_blocks
  DType probs = DType::kF32;   // type of dprobs; kF32 or kBF16
  bool keeps_rows = false;     // whether rows lie in the order of tokens, so that none are moved
};

// Drops the reads that only a left-out write needs.
void narrow(Operation& operation, const Unpermute& unpermute);

}  // namespace moejit::compiler
