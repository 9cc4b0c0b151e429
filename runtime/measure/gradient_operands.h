// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/gemm_operands.h"

namespace moejit::measure {

// Makes the operands of a contraction-grouped GEMM. Columns that belong to a group hold random
// numbers, a new one for each element; the others hold zeros. They are quantized on the device by
// the kernels that quantize a layer's weights, in 128x128 tiles, or its activations, in 1x128
// blocks. Scales of groups or of their rows are random, beside the codes of such blocks.
Result<GemmOperands> make_gradient_operands(const GemmCase& gemm, const GemmGroups& groups,
                                            runtime::Engine& engine, runtime::Device& device,
                                            uint64_t seed);

// Returns every kernel that make_gradient_operands() runs.
Result<std::vector<compiler::KernelSource>> gradient_operand_sources(
    const GemmCase& gemm, const compiler::Target& target);

// Sets columns of a matrix BF16 [rows, C], C = groups.rows(), to zero in all rows. For each group
// these are the columns from its count to the next group's start. `counts` and `offs` hold `groups`
// on the device. Waits for the end.
Result<void> zero_pad_columns(const runtime::NamedMemory& matrix, int64_t rows,
                              const GemmGroups& groups, const runtime::NamedMemory& counts,
                              const runtime::NamedMemory& offs, runtime::Engine& engine,
                              runtime::Device& device);

// Copies a matrix of bytes [rows, columns] to [columns / 128, rows, 128], as wgrad takes its
// operands; `columns` is a multiple of 128. Waits for the end.
Result<void> put_in_column_blocks(const runtime::NamedMemory& matrix, int64_t rows, int64_t columns,
                                  const runtime::NamedMemory& blocks, runtime::Engine& engine,
                                  runtime::Device& device);

}  // namespace moejit::measure
