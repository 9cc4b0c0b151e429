// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device_memory.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"

#include <cstdint>
#include <vector>

namespace moejit::measure {

// Makes the tensors on a device that a grouped GEMM reads. They are named as in its operation: "a",
// "b", "a_scale_inv", "b_scale_inv", "counts" and "offs", without scales that the case does not
// have.
//
// Rows or columns that fill up groups hold zeros, other elements random numbers, a new one for
// each. The kernels that quantize a layer's activations and weights quantize operands with scales
// of blocks or tiles, and all operands of contraction-grouped GEMMs. Others are made in their own
// format. Scales of complete sums are random, around the ones that suit the size of the numbers.
Result<std::vector<runtime::NamedMemory>> make_operands(const GemmCase& gemm,
                                                        const GemmGroups& groups,
                                                        runtime::Engine& engine,
                                                        runtime::Device& device, uint64_t seed);

// Returns every kernel that make_operands() runs.
Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target);

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
