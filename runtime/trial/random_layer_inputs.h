// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace moejit::trial {

// How often random tokens choose each expert.
enum class RandomRouting {
  kSkewed,   // popularity falls like 1 / rank over a random order of the experts
  kUniform,  // all experts alike
};

constexpr std::string_view to_string(RandomRouting routing) {
  return routing == RandomRouting::kUniform ? "uniform" : "skewed";
}

// Returns ", uniform routing" for the first line of a report; nothing for the usual routing, and
// where nothing is routed at random.
constexpr std::string_view routing_text(std::optional<RandomRouting> routing) {
  return routing == RandomRouting::kUniform ? ", uniform routing" : "";
}

// Seeded inputs like those of a trained model, the same bits on every machine and target:
// activations with outlier channels, tokens and elements; weights whose rows differ in size;
// experts whose popularity falls like 1 / rank, or is the same; probabilities that sum to 1.
//
// A rank that holds r = local / all of the experts sees only tokens with at least one expert here.
// Of their K choices a share of r / (1 - (1 - r)^K) is local in the mean, the others are -1; where
// all experts are local, one choice in 64 is -1 all the same. Where the layer ignores foreign
// experts, every other one of those choices is the id of one instead.

// Returns topk_ids [T, K] alone: those of random_tokens().
runtime::HostTensor random_topk_ids(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

// Returns x, topk_ids and topk_probs.
runtime::TensorMap random_tokens(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                 RandomRouting routing = RandomRouting::kSkewed);

// Returns dy, the gradient of y.
runtime::TensorMap random_gradient(const compiler::Layer& layer, int64_t tokens, uint64_t seed);

// Returns w1 and w2 of `experts` experts.
runtime::TensorMap random_weights_of(const compiler::Layer& layer, int64_t experts, uint64_t seed);

// Returns all inputs of a measured call, forward or with the backward pass if the layer has one.
// Experts beyond the first four have copies of their weights: a kernel's time does not depend on
// it, and distinct weights for all of DeepSeek-V3's experts would need 22 GB of host memory.
runtime::TensorMap measuring_inputs(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

// Returns all inputs of a measured call of the layer that layer_of_experts() makes of a group's,
// over `slots` tokens, as those of measuring_inputs(). Tokens are those of all ranks, and many have
// no expert here: of their K choices a share of local / all experts is local in the mean.
runtime::TensorMap slot_inputs(const compiler::Layer& layer, int64_t slots, uint64_t seed);

}  // namespace moejit::trial
