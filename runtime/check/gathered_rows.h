// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"

#include <cstdint>
#include <vector>

namespace moejit::check {

// Returns the bf16 rows of a kernel's "input" in permuted order: as they are, or each with the
// values of the token that "row_tokens" names. Of kGathered, a token with probability 0 has zeros.
std::vector<uint16_t> permuted_rows(compiler::RowSource source, int64_t columns,
                                    const KernelTensors& tensors);

}  // namespace moejit::check
