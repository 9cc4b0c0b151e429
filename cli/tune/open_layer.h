// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/execution/layer_session.h"

#include <cstdint>
#include <memory>

namespace moejit::cli {

// A layer as a tuner measures it.
struct TunedLayer {
  compiler::Layer layer;
  int64_t tokens = 0;  // of the calls
  uint64_t seed = 0;   // of their operands

  bool operator==(const TunedLayer&) const = default;
};

// Keeps the memory of the layer that was opened last: problems of one layer share it, and two
// layers may be too large together.
struct OpenedLayer {
  TunedLayer tuned;
  std::shared_ptr<LayerSession> session;
};

// Opens the layer, unless it is the one that is open, and runs each of its kernels once.
Result<std::shared_ptr<LayerSession>> open_layer(const TunedLayer& tuned, OpenedLayer& opened,
                                                 runtime::Engine& engine, runtime::Device& device);

}  // namespace moejit::cli
