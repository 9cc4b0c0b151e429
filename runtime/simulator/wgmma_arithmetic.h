// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "templates/moejit_sim/machine.h"

#include <cstdint>

namespace moejit::runtime {

inline constexpr int32_t kWgmmaRows = 64;
inline constexpr uint64_t kWgmmaScratchBytes = (64 + 256) * 32 * sizeof(double);

// The operands of a WGMMA as numbers in memory: rows of 32 bytes, unswizzled.
struct WgmmaOperands {
  const unsigned char* a;  // [64][32]
  const unsigned char* b;  // [columns][32]
  int32_t columns;         // a multiple of 8, at most 256
  float* const* sums;      // of the 128 threads
  bool accumulate;
  void* scratch;  // kWgmmaScratchBytes, 64-byte aligned
};

// Adds the products to the sums, or, without `accumulate`, writes the sums of the products. Every
// bit is as Hopper's tensor cores make it (docs/recipes.md, "What tensor cores add").
using MultiplyWgmma = void (*)(const WgmmaOperands&);

// Instructions of the processor that the arithmetic is compiled for. The bits are the same.
enum class VectorLevel : uint8_t { kBaseline, kAvx2 };

// Returns the best level that this processor has.
VectorLevel vector_level();

// Returns the arithmetic for operands of these formats, which machine.h lets stand beside each
// other. The processor must have the level.
MultiplyWgmma wgmma_arithmetic(sim::OperandFormat a, sim::OperandFormat b, VectorLevel level);

// Return the arithmetic as wgmma_arithmetic() does, each for one level.
MultiplyWgmma baseline_arithmetic(sim::OperandFormat a, sim::OperandFormat b);
MultiplyWgmma avx2_arithmetic(sim::OperandFormat a, sim::OperandFormat b);

}  // namespace moejit::runtime
