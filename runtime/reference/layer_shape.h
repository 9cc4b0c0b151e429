// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace moejit::reference
