// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace moejit::reference {

// The numbers of a layer that the reference needs. `experts` counts only the experts of this rank.
struct LayerShape {
  std::int64_t experts = 0;       // E
  std::int64_t top_k = 0;         // K
  std::int64_t hidden = 0;        // H
  std::int64_t intermediate = 0;  // I
  std::int64_t alignment = 1;     // every expert's rows start at a multiple of this
  std::int64_t max_rows = 0;      // P, the static bound of permuted rows
  std::int64_t sharing = 1;       // neighboring blocks of the contraction that share a scale
  bool has_gate = true;           // whether w1 has rows of gate, else only of up
  bool is_interleaved = false;    // whether rows of gate and up alternate in w1
  bool has_biases = false;
  bool ignores_foreign = false;  // whether an id at or above E is like -1, not a bad one

  bool operator==(const LayerShape&) const = default;
};

// Returns the number of parts of I rows that w1 has.
inline std::int64_t w1_sections(const LayerShape& shape) { return shape.has_gate ? 2 : 1; }

inline std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Returns the largest number of permuted rows that `tokens` tokens can need, however they are
// routed. Every (token, k) is a row, and each expert that can have rows may need alignment - 1 pad
// rows. The sum is rounded down, because every expert ends at a multiple of the alignment.
inline std::int64_t enough_rows(std::int64_t tokens, const LayerShape& shape) {
  const std::int64_t routed = tokens * shape.top_k;
  const std::int64_t used_experts = std::min(shape.experts, routed);
  return (routed + used_experts * (shape.alignment - 1)) / shape.alignment * shape.alignment;
}

// Bits of Route::status.
inline constexpr std::uint32_t kBadExpertId =
    1U << 0;  // an id below -1 or, unless ignored, not below E
inline constexpr std::uint32_t kRowOverflow = 1U << 1;     // a routed row did not fit into max_rows
inline constexpr std::uint32_t kTooManyExperts = 1U << 4;  // a token of a map has more than top_k

// The destination of every (token, k). Expert e owns the rows [offs[e], offs[e+1]): first counts[e]
// real rows, then pad rows. All rows from offs[E] on are undefined.
struct Route {
  std::vector<std::int32_t> counts;   // [E]
  std::vector<std::int32_t> offs;     // [E + 1]
  std::vector<std::int32_t> row_map;  // [T, K], destination row or -1
  std::uint32_t status = 0;

  std::int64_t rows() const { return offs.empty() ? 0 : offs.back(); }
  // Returns the number of rows without pad rows.
  std::int64_t routed_rows() const {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  // Returns the number of experts with at least one row.
  std::int64_t routed_experts() const {
    return std::count_if(counts.begin(), counts.end(), [](std::int32_t rows) { return rows > 0; });
  }
  // Returns the number of tokens with at least one row.
  std::int64_t routed_tokens(std::int64_t top_k) const {
    std::int64_t tokens = 0;
    for (auto token = row_map.begin(); token != row_map.end(); token += top_k)
      tokens += std::any_of(token, token + top_k, [](std::int32_t row) { return row >= 0; });
    return tokens;
  }
};

// Orders destinations by expert, then token, then k. An id of -1, a bad id and an id of a foreign
// expert give no row. If the rows exceed shape.max_rows, offs is cut at max_rows, and counts is
// what is left between the cut offs. The (token, k) beyond get row -1. kRowOverflow tells that a
// row was lost; it is not set if only pad rows are cut.
Route route(std::span<const std::int64_t> topk_ids, std::int64_t tokens, const LayerShape& shape);
Route route(std::span<const std::int32_t> topk_ids, std::int64_t tokens, const LayerShape& shape);

// Routes tokens to the experts whose bytes in the map [T, E] are not 0. A token with more than
// top_k of them keeps the first ones, and sets kTooManyExperts. A token's choices are its experts
// in ascending order.
Route route_map(std::span<const std::uint8_t> map, std::int64_t tokens, const LayerShape& shape);

// Routes rows that lie in the order of experts: expert e has the next sizes[e] of `rows` rows. A
// size below 0 means none and sets kBadExpertId; sizes beyond the rows are cut and set
// kRowOverflow.
Route split_rows(std::span<const std::int64_t> sizes, std::int64_t rows, const LayerShape& shape);

// Returns one entry for each row below offs[E]: 1 for a real row, 0 for a pad row.
std::vector<std::uint8_t> real_rows(const Route& route);

struct PermutedRows {
  QuantizedRows data;        // [offs[E], cols]
  std::vector<float> probs;  // [offs[E]]
};

// Copies every routed token row, its scales and its probability to its destination. If the
// probability is 0, the data row is zeros, but scales are still copied. Pad rows are 0 in all
// three.
PermutedRows permute_pad(const QuantizedRows& x, std::span<const float> topk_probs,
                         const Route& route, std::int64_t top_k);

// Permutes without probabilities, so that no probability of 0 makes a row zeros. This is the
// gradient of the un-permuted sum.
QuantizedRows permute_pad(const QuantizedRows& x, const Route& route, std::int64_t top_k);

// Permutes x, bf16 [T, cols], to bf16 [offs[E], cols]. It copies the row of every routed token, or
// zeros if its probability is 0; pad rows are zeros. If `topk_probs` is empty, every routed row is
// copied.
std::vector<std::uint16_t> permute_pad_bf16(std::span<const std::uint16_t> x, std::int64_t cols,
                                            std::span<const float> topk_probs, const Route& route,
                                            std::int64_t top_k);

// Sums h2, bf16 [rows, hidden], to bf16 [tokens, hidden]. For each token it is the fp32 sum of its
// rows, from 0, in descending order of rows, rounded once. A token without rows gives 0.
std::vector<std::uint16_t> unpermute(std::span<const std::uint16_t> h2,
                                     std::span<const std::int32_t> row_map, std::int64_t tokens,
                                     std::int64_t top_k, std::int64_t hidden);

// Sums blocks [rows, columns]. Returns for each entry of row_map the fp32 sum of that row's blocks
// in ascending order, from 0; 0 if the entry is -1.
std::vector<float> unpermute_dprobs(std::span<const float> blocks,
                                    std::span<const std::int32_t> row_map, std::int64_t columns);

}  // namespace moejit::reference
