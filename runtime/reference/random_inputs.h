// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
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

// How often random tokens choose each expert.
enum class RandomRouting {
  kSkewed,   // popularity falls like 1 / rank over a random order of the experts
  kUniform,  // all experts are equally popular
};

constexpr std::string_view to_string(RandomRouting routing) {
  return routing == RandomRouting::kUniform ? "uniform" : "skewed";
}

// What random inputs depend on besides their types and sizes. Options of commands set it.
struct RandomInputs {
  std::uint64_t seed = 0;
  RandomRouting routing = RandomRouting::kSkewed;
  bool operator==(const RandomInputs&) const = default;
};

struct RoutingOptions {
  double unrouted_share = 0.125;  // the share of the (token, k) that get id -1
  bool may_repeat = false;        // whether a token may have the same expert twice
};

// Returns topk_ids [tokens, top_k].
std::vector<std::int32_t> random_routing(std::int64_t tokens, std::int64_t experts,
                                         std::int64_t top_k, const RandomInputs& random,
                                         const RoutingOptions& options = {});

// Returns topk_probs [tokens, top_k]: positive, and the sum over a token is 1 up to rounding.
std::vector<float> random_probs(std::int64_t tokens, std::int64_t top_k, std::uint64_t seed);

}  // namespace moejit::reference
