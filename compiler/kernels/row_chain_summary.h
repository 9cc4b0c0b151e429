// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/row_chain.h"

#include <string>

namespace moejit::compiler {

// Returns a chain in words, for the first line of its text: what it loads, computes, casts to and
// stores.
std::string summary_of(const RowChainSpec& spec);

}  // namespace moejit::compiler
