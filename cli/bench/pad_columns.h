// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/gemm_operands.h"
#include "compiler/kernel_source.h"

namespace moejit::cli {

// The kernel that zero_pad_columns() runs.
compiler::KernelSource pad_columns_source(const compiler::Target& target);

// Sets the columns of each group from its count to the next group's start to zero in all rows of a
// matrix BF16 [rows, C], C = groups.rows(). `counts` and `offs` hold `groups` on the device. Waits
// for the end.
Result<void> zero_pad_columns(const NamedMemory& matrix, int64_t rows, const GemmGroups& groups,
                              const NamedMemory& counts, const NamedMemory& offs,
                              runtime::Engine& engine, runtime::Device& device);

}  // namespace moejit::cli
