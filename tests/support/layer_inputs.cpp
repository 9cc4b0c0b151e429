// SPDX-License-Identifier: Apache-2.0
#include "tests/support/layer_inputs.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"

#include <algorithm>
#include <cmath>

namespace moejit::reference {
namespace {

// Purposes of the streams that seed the weights; random_inputs.cpp has no others of these numbers.
constexpr std::uint64_t kW1Purpose = 4, kW2Purpose = 5;

constexpr std::uint16_t kOne = 0x3F80;
constexpr std::uint16_t kMinusOne = 0xBF80;

// Returns -1, 0 or 1.
std::uint16_t random_sign_or_zero(const RandomStream& stream, std::uint64_t index) {
  constexpr std::uint16_t kChoices[] = {kMinusOne, 0, kOne};
  return kChoices[stream.below(index, 3)];
}

std::vector<std::uint16_t> exact_x(std::int64_t tokens, std::int64_t hidden,
                                   const RandomStream& stream) {
  std::vector<std::uint16_t> x(tokens * hidden);
  for (std::int64_t i = 0; i < tokens * hidden; ++i) {
    const bool is_gate_column = i % hidden == 0;
    x[i] = bf16_from_double(is_gate_column ? 16.0 : static_cast<double>(stream.below(i, 5) - 2));
  }
  return x;
}

std::vector<std::uint16_t> exact_w1(const LayerShape& shape, const RandomStream& stream) {
  constexpr std::int64_t kUpWeights = 8;
  const std::int64_t rows = shape.experts * 2 * shape.intermediate;
  std::vector<std::uint16_t> w1(rows * shape.hidden, 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::uint16_t* const weights = &w1[row * shape.hidden];
    const bool is_gate = row % (2 * shape.intermediate) < shape.intermediate;
    if (is_gate) {
      weights[0] = bf16_from_double(stream.below(row * kUpWeights, 2) == 0 ? 8.0 : 16.0);
      continue;
    }
    for (std::int64_t j = 0; j < kUpWeights; ++j) {
      const std::uint64_t index = row * kUpWeights + j;
      const std::int64_t col = 1 + stream.below(index, shape.hidden - 1);
      weights[col] = stream.bits(index) % 2 == 0 ? kOne : kMinusOne;
    }
  }
  return w1;
}

// Overwrites one block of `count` elements, count >= 2.
void make_special(std::int64_t kind, std::uint16_t* block, std::int64_t count) {
  const auto fill = [&](std::uint16_t value) { std::fill_n(block, count, value); };
  const auto set_amax = [&](std::uint16_t amax) {
    for (std::int64_t i = 0; i < count; ++i)
      block[i] = bf16_from_double(0.25 * static_cast<double>(i % 7));
    block[count / 2] = amax;
  };
  switch (kind) {
    case 0: block[count / 2] = 0x7FC0; break;  // NaN among numbers
    case 1: fill(0xFFC0); break;               // only NaN
    case 2: block[count - 1] = 0x7F80; break;  // Inf
    case 3: block[0] = 0xFF80; break;          // -Inf
    case 4: fill(0x8000); break;               // -0
    case 5: fill(0x0001); break;               // the smallest subnormal
    case 6: block[1] = 0xFF7F; break;          // the largest magnitude of bf16
    case 7: fill(0x0000); break;
    case 8: fill(0x2B80); break;       // 2^-40
    case 9: set_amax(0x43E0); break;   // 448
    case 10: set_amax(0x43DF); break;  // its neighbors, 446 and 450
    case 11: set_amax(0x43E1); break;
    case 12: set_amax(0x44E0 | 0x8000); break;  // -448 * 2^2
    case 13: set_amax(0x40E1); break;           // just above 448 * 2^-6
    default: break;
  }
}

}  // namespace

LayerInputs random_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                          const RoutingOptions& options) {
  LayerInputs inputs;
  inputs.tokens = tokens;
  inputs.x = random_activations(tokens, shape.hidden, seed);
  inputs.topk_ids = random_routing(tokens, shape.experts, shape.top_k, {seed}, options);
  inputs.topk_probs = random_probs(tokens, shape.top_k, seed);
  inputs.w1 = random_weights(shape.experts, w1_sections(shape) * shape.intermediate, shape.hidden,
                             RandomStream(seed, kW1Purpose).bits(0));
  inputs.w2 = random_weights(shape.experts, shape.hidden, shape.intermediate,
                             RandomStream(seed, kW2Purpose).bits(0));
  return inputs;
}

LayerInputs exact_inputs(const LayerShape& shape, std::int64_t tokens, std::uint64_t seed,
                         const RoutingOptions& options) {
  constexpr std::uint64_t kPurpose = 1000;  // away from the purposes of random_inputs()
  const RandomStream w2_stream(seed, kPurpose + 2);
  LayerInputs inputs;
  inputs.tokens = tokens;
  inputs.x = exact_x(tokens, shape.hidden, RandomStream(seed, kPurpose));
  inputs.topk_ids = random_routing(tokens, shape.experts, shape.top_k, {seed}, options);
  inputs.topk_probs.assign(tokens * shape.top_k, 0x1p-7F);
  inputs.w1 = exact_w1(shape, RandomStream(seed, kPurpose + 1));
  inputs.w2.resize(shape.experts * shape.hidden * shape.intermediate);
  for (std::size_t i = 0; i < inputs.w2.size(); ++i) {
    inputs.w2[i] = random_sign_or_zero(w2_stream, i);
  }
  return inputs;
}

std::vector<std::uint16_t> special_activations(std::int64_t tokens, std::int64_t hidden,
                                               std::uint64_t seed) {
  std::vector<std::uint16_t> x = random_activations(tokens, hidden, seed);
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t col = 0; col < hidden; col += kBlock) {
      const std::int64_t kind = (token + col / kBlock * 5) % kSpecialBlocks;
      make_special(kind, &x[token * hidden + col], std::min(kBlock, hidden - col));
    }
  }
  return x;
}

}  // namespace moejit::reference
