// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/layer_shape.h"

#include <cstdint>
#include <vector>

// Inputs from a seed. The same seed gives the same bits with every compiler and standard library.
// The generator counts instead of keeping a state, and uses only integers and exactly rounded
// operations.
namespace moejit::reference {

// Random numbers of one purpose: value i depends on (seed, purpose, i) alone.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t purpose);

  std::uint64_t bits(std::uint64_t index) const;
  // Returns a uniform number in [0, count), count > 0 and well below 2^32.
  std::int64_t below(std::uint64_t index, std::int64_t count) const;
  // Returns a uniform number in [0, 1), a multiple of 2^-53.
  double uniform(std::uint64_t index) const;
  // Returns a sum of eight uniform numbers with mean 0 and variance 1: close to normal up to 4
  // sigma, never beyond 4.9.
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t key_;
};

// Returns bf16 [tokens, hidden] like the activations of a trained model. Elements are N(0, 1), with
// one channel in 64 about 16 times larger, and one element in 4096 that is 64 times larger. Tokens
// differ in size by powers of two from 1/4 to 4.
std::vector<std::uint16_t> random_activations(std::int64_t tokens, std::int64_t hidden,
                                              std::uint64_t seed);

// Returns bf16 [experts, rows, cols]: N(0, 2^-6), rows that differ in size by powers of two from
// 1/2 to 2.
std::vector<std::uint16_t> random_weights(std::int64_t experts, std::int64_t rows,
                                          std::int64_t cols, std::uint64_t seed);

struct RoutingOptions {
  double unrouted_share = 0.125;  // the share of the (token, k) that get id -1
  bool may_repeat = false;        // whether a token may have the same expert twice
  bool is_uniform = false;        // whether all experts are chosen alike
};

// Returns topk_ids [tokens, top_k]; popularity falls like 1/rank over a random order of experts,
// unless the choice is uniform.
std::vector<std::int32_t> random_routing(std::int64_t tokens, std::int64_t experts,
                                         std::int64_t top_k, std::uint64_t seed,
                                         const RoutingOptions& options = {});

// Returns topk_probs [tokens, top_k]: positive, and the sum over a token is 1 up to rounding.
std::vector<float> random_probs(std::int64_t tokens, std::int64_t top_k, std::uint64_t seed);

// Returns a layer's inputs, without biases, from the functions above. Ignores shape.max_rows.
LayerInputs random_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                          const RoutingOptions& options = {});

// Returns inputs for which every product, partial sum and activation is exact. So a kernel's y and
// all intermediates equal the reference bit for bit whatever its accumulator. For this x holds
// integers up to 2, except 16 in column 0. Gate weights pick only column 0, so that the gate is 128
// or 256 and its sigmoid 1. The up weights are -1, 0, 1, at most eight of them per row not 0 and
// none in column 0. Probabilities are 2^-7, and w2 holds -1, 0, 1. Then |y| before quantization is
// an integer up to 32. A partial sum of 128 products is at most 4096, below the 2^13 that even a
// 14-bit accumulator holds.
LayerInputs exact_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                         const RoutingOptions& options = {});

// The number of kinds of special blocks.
inline constexpr std::int64_t kSpecialBlocks = 14;
// Returns bf16 [tokens, hidden]: random activations in which blocks of 128 columns take turns at
// being special. They are NaN among numbers, only NaN, Inf, -Inf, -0, subnormals, the largest bf16,
// all zero, or all 2^-40. Or their amax is 448 * 2^k or a bf16 neighbor of it. kSpecialBlocks rows
// show each kind.
std::vector<std::uint16_t> special_activations(std::int64_t tokens, std::int64_t hidden,
                                               std::uint64_t seed);

}  // namespace moejit::reference
