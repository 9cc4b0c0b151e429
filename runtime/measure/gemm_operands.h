// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device_memory.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"

#include <cstdint>
#include <vector>

namespace moejit::measure {

// What a grouped GEMM reads, on a device, as params/*grouped_gemm_params.h describe it: operands,
// F32 scales and I32 groups. E groups, P rows or C columns, of which those that fill up groups hold
// zeros. Scales that the case has not are empty.
struct GemmOperands {
  // Row-grouped, E4M3 or BF16; contraction-grouped, E4M3
  runtime::NamedMemory a;  // [P, k]; [C / 128, rows, 128]
  runtime::NamedMemory a_scale_inv;
  runtime::NamedMemory b;  // [E, n, k]; [C / 128, n, 128]
  runtime::NamedMemory b_scale_inv;
  runtime::NamedMemory counts;  // [E]
  runtime::NamedMemory offs;    // [E + 1]
};

// Makes those of a row-grouped GEMM of random numbers, all of them different. Those with scales of
// blocks are quantised by the kernels that quantise a layer's activations and weights; the others
// are made as they are, with random scales around those which their size asks for.
Result<GemmOperands> make_operands(const GemmCase& gemm, const GemmGroups& groups,
                                   runtime::Engine& engine, runtime::Device& device, uint64_t seed);

// Returns every kernel that make_operands() runs.
Result<std::vector<compiler::KernelSource>> operand_sources(const GemmCase& gemm,
                                                            const compiler::Target& target);

}  // namespace moejit::measure
