// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::testing {

// How large a random layer may be.
enum class LayerSize {
  kAny,     // whatever a description may say; for compilers, which do not care
  kMedium,  // a GPU and the CPU reference take about a second
  kSmall,   // the simulator takes seconds
};

// Returns the description of a layer, as JSON text, in which a seed chooses every field of
// docs/layer-description.md: sizes that a beginner would try and odd ones, each choice of each
// option, and what is left to its default. The same seed and size give the same bytes everywhere.
//
// Most descriptions are ones that moejit takes. Three or four of a hundred have a mistake that
// people make (a width of 100, a recipe without kernels, a splits_alignment that the recipe mxfp8
// cannot train with), which is to be refused with a sentence.
std::string random_layer(uint64_t seed, LayerSize size);

}  // namespace moejit::testing
