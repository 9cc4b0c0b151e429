// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::testing {

// What environment variables ask of the tests with random layers (docs/testing.md).
struct RandomLayersOptions {
  bool is_long = false;     // RANDOM_LAYERS or RANDOM_LAYERS_SEED is set
  int64_t layers = 0;       // RANDOM_LAYERS; 1 where only RANDOM_LAYERS_SEED is set
  uint64_t first_seed = 1;  // RANDOM_LAYERS_SEED
  std::string target;  // RANDOM_LAYERS_TARGET: "sim", "sim:sm_80", "cuda", ...; empty: compiled

  // The seeds to take: `layers` from first_seed on; where nothing is asked for, 1 to `fixed` and
  // behind them `fresh` new ones, which are printed.
  std::vector<uint64_t> seeds(int64_t fixed, int64_t fresh) const;
};
RandomLayersOptions random_layers_options();

}  // namespace moejit::testing
