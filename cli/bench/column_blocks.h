// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/gemm_operands.h"
#include "compiler/kernel_source.h"

namespace moejit::cli {

// The kernel that put_in_column_blocks() runs.
compiler::KernelSource column_blocks_source(const compiler::Target& target);

// Copies a matrix of bytes [rows, columns] to [columns / 128, rows, 128], as wgrad takes its
// operands; `columns` is a multiple of 128. Waits for the end.
Result<void> put_in_column_blocks(const NamedMemory& matrix, int64_t rows, int64_t columns,
                                  const NamedMemory& blocks, runtime::Engine& engine,
                                  runtime::Device& device);

}  // namespace moejit::cli
