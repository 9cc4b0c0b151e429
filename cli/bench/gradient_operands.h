// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench/gemm_operands.h"

namespace moejit::cli {

// Of a contraction-grouped GEMM: random numbers, all of them different, in columns that belong to a
// group and zeros in the others, quantised on the device by the kernels that quantise a layer's
// weights, in 128x128 tiles, or its activations, in 1x128 blocks.
Result<GemmOperands> make_gradient_operands(const GemmCase& gemm, const GemmGroups& groups,
                                            runtime::Engine& engine, runtime::Device& device,
                                            uint64_t seed);

// Every kernel that make_gradient_operands() runs.
Result<std::vector<compiler::KernelSource>> gradient_operand_sources(
    const GemmCase& gemm, const compiler::Target& target);

}  // namespace moejit::cli
