// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/trial.h"

#include <cstdint>
#include <memory>

namespace moejit::tune {

// A layer as a tuner measures it, on one GPU. Of a layer of a group that is what a rank does beside
// the exchange: the layer of its experts, for which the slots of all ranks are tokens.
struct TunedLayer {
  compiler::Layer layer;  // as it is described
  int64_t tokens = 0;     // of the calls; of a group those of each rank
  uint64_t seed = 0;      // of their operands

  // Returns the layer that runs on one GPU, and the tokens of its calls.
  compiler::Layer measured_layer() const;
  int64_t measured_tokens() const;

  bool operator==(const TunedLayer&) const = default;
};

// Keeps the memory of the layer that was opened last: problems of one layer share it, and two
// layers may be too large together.
struct OpenedLayer {
  TunedLayer tuned;
  std::shared_ptr<trial::Trial> session;
};

// Opens the layer, unless it is the one that is open, and runs each of its kernels once.
Result<std::shared_ptr<trial::Trial>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device);

}  // namespace moejit::tune
