// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/random_inputs.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moejit::reference {
namespace {

// One purpose per kind of number, so that no two tensors share their randomness.
enum Purpose : std::uint64_t {
  kX,
  kXOutlierChannel,
  kXTokenSize,
  kXOutlierElement,
  kWeights = 6,
  kWeightRowSize,
  kExpertOrder,
  kExpertChoice,
  kUnrouted,
  kProbs,
};

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15U;

// Returns one of 2^low ... 2^high, each equally likely.
double random_power_of_two(const RandomStream& stream, std::uint64_t index, int low, int high) {
  return std::ldexp(1.0, low + static_cast<int>(stream.below(index, high - low + 1)));
}

std::vector<std::int64_t> shuffled_experts(std::int64_t experts, std::uint64_t seed) {
  const RandomStream stream(seed, kExpertOrder);
  std::vector<std::int64_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = experts - 1; i > 0; --i) std::swap(order[i], order[stream.below(i, i + 1)]);
  return order;
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t purpose)
    : key_(mix(mix(seed + kGoldenGamma) + kGoldenGamma * (purpose + 1))) {}

std::uint64_t RandomStream::bits(std::uint64_t index) const {
  return mix(key_ + kGoldenGamma * (index + 1));
}

std::int64_t RandomStream::below(std::uint64_t index, std::int64_t count) const {
  return static_cast<std::int64_t>((bits(index) >> 32) * static_cast<std::uint64_t>(count) >> 32);
}

double RandomStream::uniform(std::uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double RandomStream::normal(std::uint64_t index) const {
  constexpr std::uint64_t kEvenFields = 0x0000FFFF0000FFFFU;
  std::uint64_t sums = 0;  // two of 32 bits
  for (const std::uint64_t word : {bits(2 * index), bits(2 * index + 1)})
    sums += (word & kEvenFields) + (word >> 16 & kEvenFields);
  const std::uint64_t sum = (sums & 0xFFFFFFFFU) + (sums >> 32);
  // Eight uniform integers in [0, 65535]: mean 8 * 32767.5, variance 8 * (65536^2 - 1) / 12.
  constexpr double kMean = 262140.0;
  constexpr double kDeviation = 53509.9;
  return (static_cast<double>(sum) - kMean) / kDeviation;
}

std::vector<std::uint16_t> random_activations(std::int64_t tokens, std::int64_t hidden,
                                              std::uint64_t seed) {
  const RandomStream values(seed, kX);
  const RandomStream channels(seed, kXOutlierChannel);
  const RandomStream token_sizes(seed, kXTokenSize);
  const RandomStream outliers(seed, kXOutlierElement);
  std::vector<std::uint16_t> x(tokens * hidden);
  parallel_for(tokens, [&](std::int64_t token) {
    const double token_size = random_power_of_two(token_sizes, token, -2, 2);
    for (std::int64_t col = 0; col < hidden; ++col) {
      const std::int64_t i = token * hidden + col;
      double value = values.normal(i) * token_size;
      if (channels.below(col, 64) == 0) value *= 16.0;
      if (outliers.below(i, 4096) == 0) value *= 64.0;
      x[i] = bf16_from_double(value);
    }
  });
  return x;
}

std::vector<std::uint16_t> random_weights(std::int64_t experts, std::int64_t rows,
                                          std::int64_t cols, std::uint64_t seed) {
  const RandomStream values(seed, kWeights);
  const RandomStream row_sizes(seed, kWeightRowSize);
  std::vector<std::uint16_t> weights(experts * rows * cols);
  parallel_for(experts * rows, [&](std::int64_t row) {
    const double size = 0x1p-6 * random_power_of_two(row_sizes, row, -1, 1);
    for (std::int64_t i = row * cols; i < (row + 1) * cols; ++i) {
      weights[i] = bf16_from_double(values.normal(i) * size);
    }
  });
  return weights;
}

std::vector<std::int32_t> random_routing(std::int64_t tokens, std::int64_t experts,
                                         std::int64_t top_k, const RandomInputs& random,
                                         const RoutingOptions& options) {
  const std::vector<std::int64_t> order = shuffled_experts(experts, random.seed);
  const auto weight_of = [&](std::int64_t rank) {
    return random.routing == RandomRouting::kUniform ? 1.0 : 1.0 / static_cast<double>(rank + 1);
  };
  const RandomStream choices(random.seed, kExpertChoice);
  const RandomStream unrouted(random.seed, kUnrouted);
  std::vector<std::int32_t> ids(tokens * top_k, -1);
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::vector<bool> is_taken(experts, false);
    for (std::int64_t k = 0; k < top_k; ++k) {
      // Draw from the weights of the experts that are still free.
      double total = 0.0;
      for (std::int64_t rank = 0; rank < experts; ++rank) {
        if (!is_taken[rank]) total += weight_of(rank);
      }
      const std::int64_t i = token * top_k + k;
      double rest = choices.uniform(i) * total;
      std::int64_t chosen = -1;
      for (std::int64_t rank = 0; rank < experts; ++rank) {
        if (is_taken[rank]) continue;
        chosen = rank;
        rest -= weight_of(rank);
        if (rest < 0.0) break;
      }
      if (chosen < 0) break;  // top_k > experts: the others stay unrouted
      is_taken[chosen] = !options.may_repeat;
      if (unrouted.uniform(i) >= options.unrouted_share) {
        ids[i] = static_cast<std::int32_t>(order[chosen]);
      }
    }
  }
  return ids;
}

std::vector<float> random_probs(std::int64_t tokens, std::int64_t top_k, std::uint64_t seed) {
  const RandomStream stream(seed, kProbs);
  std::vector<float> probs(tokens * top_k);
  for (std::int64_t token = 0; token < tokens; ++token) {
    double total = 0.0;
    for (std::int64_t i = token * top_k; i < (token + 1) * top_k; ++i) {
      total += stream.uniform(i) + 0x1p-6;
    }
    for (std::int64_t i = token * top_k; i < (token + 1) * top_k; ++i) {
      probs[i] = static_cast<float>((stream.uniform(i) + 0x1p-6) / total);
    }
  }
  return probs;
}

}  // namespace moejit::reference
