// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/kernel_tensors.h"
#include "compiler/kernel_spec.h"

#include <cstdint>
#include <vector>

namespace moejit::cli {

// Returns permuted rows, each with the values of its token in "input"; a token with probability 0
// has zeros, unless rows are those of all tokens.
std::vector<uint16_t> gathered_rows(int64_t columns, compiler::RowSource source,
                                    const KernelTensors& tensors);

}  // namespace moejit::cli
