// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <string>

namespace moejit::runtime {

// Returns what a sentence calls a layer: "the layer NAME", or "the layer" where it has no name.
inline std::string named_layer(const compiler::Layer& layer) {
  return layer.name.empty() ? "the layer" : "the layer " + layer.name;
}

}  // namespace moejit::runtime
