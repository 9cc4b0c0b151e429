// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/trial.h"

#include <cstdint>
#include <memory>

namespace moejit::tune {

// A layer as a tuner measures it, on one GPU. For a layer of a group, the tuner measures what a
// rank computes beside the exchange. This is the layer of the rank's experts, with the slots of all
// ranks as tokens.
struct TunedLayer {
  compiler::Layer layer;  // as it is described
  int64_t tokens = 0;     // of the calls; for a group, each rank's
  uint64_t seed = 0;      // of the operands

  // Return the layer that runs on one GPU, and the tokens of its calls.
  compiler::Layer measured_layer() const;
  int64_t measured_tokens() const;

  bool operator==(const TunedLayer&) const = default;
};

// Keeps the memory of the layer that was opened last. Problems of one layer share it; two layers
// may be too large to be open together.
struct OpenedLayer {
  TunedLayer tuned;
  std::shared_ptr<trial::Trial> session;
};

// Opens the layer, unless it is already open, and runs each of its kernels once.
Result<std::shared_ptr<trial::Trial>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device);

}  // namespace moejit::tune
