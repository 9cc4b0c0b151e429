// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <cstdint>
#include <vector>

namespace moejit::cli {

// Returns the layers that the experts of a transformers model ask for with moejit.torch, in calls
// of at most `tokens` tokens. There are layers for each power of two from 256 on, without gradients
// and with any that autograd may want. Probabilities and gradients of weights come in either type.
// moejit/torch/ahead.py has the same list for a model in memory; tests/torch/ahead_test.py compares
// the two with what calls ask for. Errors: all of parse_layer() for `base` with these fields.
Result<std::vector<compiler::Layer>> layers_for_torch(const compiler::Layer& base, int64_t tokens);

}  // namespace moejit::cli
