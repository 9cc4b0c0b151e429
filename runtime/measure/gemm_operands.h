// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device_memory.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"

#include <cstdint>
#include <vector>

namespace moejit::measure {

// The tensors on a device that a grouped GEMM reads, as params/*grouped_gemm_params.h describe
// them: operands, F32 scales and I32 groups. There are E groups and P rows or C columns. Rows or
// columns that fill up groups hold zeros. Scales that the case does not have are empty.
struct GemmOperands {
  // Each operand has two shapes: for a row-grouped GEMM (E4M3 or BF16), and for a
  // contraction-grouped GEMM (E4M3).
  runtime::NamedMemory a;  // [P, k]; [C / 128, rows, 128]
  runtime::NamedMemory a_scale_inv;
  runtime::NamedMemory b;  // [E, n, k]; [C / 128, n, 128]
  runtime::NamedMemory b_scale_inv;
  runtime::NamedMemory counts;  // [E]
  runtime::NamedMemory offs;    // [E + 1]
};

// Makes the operands of a row-grouped GEMM from random numbers, a new one for each element. The
// kernels that quantize a layer's activations and weights quantize operands with scales of blocks.
// Other operands are made in their own format, with random scales, if any, around the ones that
// suit the size of their numbers.
Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device, uint64_t seed);

// Returns scales for complete sums: from 1/2 to 2 times the scale that brings random e4m3 back to
// the deviation 1. Different purposes give different ones.
std::vector<float> random_end_scales(int64_t count, uint64_t seed, uint64_t purpose);

// Returns every kernel that make_operands() runs.
Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target);

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
