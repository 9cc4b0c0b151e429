// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/random_layer_inputs.h"

#include "runtime/checkpoint/four_bit_format.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/packed_weights.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/trial/router_inputs.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moejit::trial {
namespace {

using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;

// Purposes of random numbers; each has its own seed, so that w1 and w2 differ.
enum Purpose : uint64_t {
  kW1 = 100,
  kW2 = 101,
  kDy = 102,
  kB1 = 103,
  kB2 = 104,
  kPacked = 105,
  kShared = 106
};

// Returns the share to drop of choices drawn from the local experts. In the mean as many stay as a
// token has here if it draws its K from the experts of all ranks.
double unrouted_share(const compiler::Layer& layer) {
  // A token has no more local choices than there are local experts.
  const int32_t drawn = std::min(layer.top_k, layer.local_experts);
  const double local = static_cast<double>(layer.local_experts) * layer.top_k / layer.experts;
  return std::max(1.0 - local / drawn, 1.0 / 64);
}

// Replaces every other -1 with the id of an expert on another rank, taking these ids in turn. If
// all experts are local, the id is E, which some callers use for foreign experts.
void add_foreign_ids(const compiler::Layer& layer, std::vector<int64_t>& ids) {
  const int64_t foreign = std::max(layer.experts - layer.local_experts, 1);
  int64_t seen = 0;
  for (int64_t& id : ids)
    if (id < 0 && seen++ % 2 == 0) id = layer.local_experts + seen / 2 % foreign;
}

// Returns how many rows each expert has, if they choose as random tokens do.
HostTensor random_sizes(const compiler::Layer& layer, int64_t rows, const RandomInputs& random) {
  std::vector<int64_t> sizes(static_cast<size_t>(layer.local_experts));
  compiler::Layer local = layer;  // whose rows all come here
  local.experts = layer.local_experts;
  for (const int64_t id : expert_ids(random_topk_ids(local, rows, random)))
    if (id >= 0) ++sizes[static_cast<size_t>(id)];
  return make_topk_ids(dtype_of(layer.tokens_per_expert_dtype), {layer.local_experts}, sizes);
}

// Returns the first choices' probabilities of tokens with two, so that they differ from 1.
std::vector<float> lone_probs(int64_t rows, uint64_t seed) {
  std::vector<float> probs = reference::random_probs(rows, 2, seed);
  for (int64_t row = 0; row < rows; ++row) probs[row] = probs[2 * row];
  probs.resize(rows);
  return probs;
}

// Adds packed tiles and their scales.
void add_packed(const std::string& name, std::vector<int64_t> tiles, uint64_t seed,
                TensorMap& weights) {
  const reference::RandomStream random(seed, kPacked);
  const int64_t count = tiles[0] * tiles[1] * tiles[2];
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i)
    scales.push_back(std::ldexp(1.0F, static_cast<int>(random.below(i, 3)) - 14));
  weights[name + "_scale_inv"] = make_tensor(DType::kF32, tiles, scales);
  tiles.push_back(reference::kPackedTileBytes);
  weights[name + "_q"] = make_tensor(DType::kU8, std::move(tiles),
                                     reference::random_packed_tiles(count, random.bits(count)));
}

// Adds packed tiles of weights [experts, rows, columns] whose codes become bf16, and factors.
void add_packed_bf16(const std::string& name, compiler::PackedFormat format, int64_t experts,
                     int64_t rows, int64_t columns, int64_t sections, uint64_t seed,
                     TensorMap& weights) {
  const reference::FourBitFormat four_bit = checkpoint::four_bit_format(format).value();
  const compiler::PackedTile& tile = packed_tile(format);
  const int64_t down = sections * reference::block_count(rows / sections);
  const int64_t across = (columns + tile.columns - 1) / tile.columns;
  weights[name + "_scale_inv"] =
      make_tensor(DType::kF32, {experts, sections},
                  reference::random_section_factors(four_bit, experts * sections, seed));
  weights[name + "_q"] = make_tensor(
      DType::kU8, {experts, down, across, tile.bytes},
      reference::pack_four_bit(reference::random_four_bit(four_bit, experts * rows * columns, seed)
                                   .view(experts, rows, columns, sections))
          .tiles);
}

// Adds w1 and w2 in bf16.
void add_bf16(const compiler::Layer& layer, int64_t experts, uint64_t seed, TensorMap& weights) {
  const int64_t h = layer.hidden, i = layer.intermediate;
  const int64_t rows = compiler::w1_sections(layer) * i;
  // All layouts get the same rows, in another order or in two tensors.
  std::vector<uint16_t> w1 =
      reference::random_weights(experts, rows, h, reference::RandomStream(seed, kW1).bits(0));
  if (layer.gate_up_layout == compiler::GateUpLayout::kInterleaved)
    w1 = reference::interleaved<uint16_t>(w1, i, h);
  if (has_separate_gate_up(layer)) {
    const auto elements = static_cast<size_t>(i * h);
    for (const auto& [name, section] : {std::pair("w1_gate", 0), std::pair("w1_up", 1)})
      weights[name] = make_tensor(DType::kBF16, {experts, i, h},
                                  reference::section_of<uint16_t>(w1, section, elements));
  } else {
    weights["w1"] = make_tensor(DType::kBF16, {experts, rows, h}, w1);
  }
  weights["w2"] = make_tensor(
      DType::kBF16, {experts, h, i},
      reference::random_weights(experts, h, i, reference::RandomStream(seed, kW2).bits(0)));
}

}  // namespace

HostTensor random_topk_ids(const compiler::Layer& layer, int64_t tokens,
                           const RandomInputs& random) {
  const std::vector<int32_t> drawn = reference::random_routing(
      tokens, layer.local_experts, layer.top_k, random, {.unrouted_share = unrouted_share(layer)});
  std::vector<int64_t> ids(drawn.begin(), drawn.end());
  if (layer.foreign_experts == compiler::ForeignExperts::kIgnore) add_foreign_ids(layer, ids);
  return make_topk_ids(dtype_of(layer.topk_ids_dtype), {tokens, layer.top_k}, ids);
}

TensorMap random_tokens(const compiler::Layer& layer, int64_t tokens, const RandomInputs& random) {
  TensorMap inputs;
  inputs["x"] = make_tensor(DType::kBF16, {tokens, layer.hidden},
                            reference::random_activations(tokens, layer.hidden, random.seed));
  if (is_grouped(layer)) {
    inputs["tokens_per_expert"] = random_sizes(layer, tokens, random);
    inputs["probs"] = make_tensor(DType::kF32, {tokens}, lone_probs(tokens, random.seed));
    return inputs;
  }
  if (layer.router) {
    inputs.merge(random_logits(layer, tokens, random));
  } else {
    inputs["topk_ids"] = random_topk_ids(layer, tokens, random);
    inputs["topk_probs"] =
        make_topk_probs(dtype_of(layer.topk_probs_dtype), {tokens, layer.top_k},
                        reference::random_probs(tokens, layer.top_k, random.seed));
  }
  if (layer.shared.gate)
    inputs["shared_probs"] =
        make_topk_probs(dtype_of(layer.topk_probs_dtype), {tokens},
                        lone_probs(tokens, reference::RandomStream(random.seed, kShared).bits(0)));
  return inputs;
}

TensorMap random_gradient(const compiler::Layer& layer, int64_t tokens, uint64_t seed) {
  TensorMap inputs;
  inputs["dy"] = make_tensor(DType::kBF16, {tokens, layer.hidden},
                             reference::random_activations(
                                 tokens, layer.hidden, reference::RandomStream(seed, kDy).bits(0)));
  if (layer.router) inputs.merge(loss_coefficients(*layer.router));
  return inputs;
}

TensorMap random_weights_of(const compiler::Layer& layer, int64_t experts, uint64_t seed) {
  const int64_t h = layer.hidden, i = layer.intermediate;
  const int64_t rows = compiler::w1_sections(layer) * i;
  TensorMap weights;
  const compiler::PackedFormat format = layer.recipe.weights.packed;
  if (checkpoint::four_bit_format(format)) {
    add_packed_bf16("w1", format, experts, rows, h, compiler::w1_sections(layer),
                    reference::RandomStream(seed, kW1).bits(0), weights);
    add_packed_bf16("w2", format, experts, h, i, 1, reference::RandomStream(seed, kW2).bits(0),
                    weights);
  } else if (is_packed(layer.recipe.weights)) {
    add_packed("w1",
               {experts, compiler::w1_sections(layer) * reference::block_count(i),
                reference::block_count(h)},
               seed, weights);
    add_packed("w2", {experts, reference::block_count(h), reference::block_count(i)}, seed + 1,
               weights);
  } else {
    add_bf16(layer, experts, seed, weights);
  }
  if (!layer.biases) return weights;
  std::vector<uint16_t> b1 =
      reference::random_activations(experts, rows, reference::RandomStream(seed, kB1).bits(0));
  if (layer.gate_up_layout == compiler::GateUpLayout::kInterleaved)
    b1 = reference::interleaved<uint16_t>(b1, i, 1);
  weights["b1"] = make_tensor(DType::kBF16, {experts, rows}, b1);
  weights["b2"] = make_tensor(
      DType::kBF16, {experts, h},
      reference::random_activations(experts, h, reference::RandomStream(seed, kB2).bits(0)));
  return weights;
}

}  // namespace moejit::trial
