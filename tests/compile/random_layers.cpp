// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/random_layers.h"

#include <cstdlib>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <optional>
#include <random>

namespace moejit::testing {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

std::vector<uint64_t> RandomLayersOptions::seeds(int64_t fixed, int64_t fresh) const {
  std::vector<uint64_t> seeds;
  for (int64_t i = 0; i < (is_long ? layers : fixed); ++i)
    seeds.push_back(first_seed + static_cast<uint64_t>(i));
  if (is_long) return seeds;
  std::random_device device;
  for (int64_t i = 0; i < fresh; ++i) seeds.push_back(device());
  fmt::print("seeds: {}\n", fmt::join(seeds, ", "));
  return seeds;
}

RandomLayersOptions random_layers_options() {
  const auto layers = variable("RANDOM_LAYERS");
  const auto seed = variable("RANDOM_LAYERS_SEED");
  RandomLayersOptions options{.is_long = layers || seed,
                              .layers = layers ? std::strtoll(layers->c_str(), nullptr, 10) : 1,
                              .target = variable("RANDOM_LAYERS_TARGET").value_or("")};
  if (seed) options.first_seed = std::strtoull(seed->c_str(), nullptr, 10);
  return options;
}

}  // namespace moejit::testing
