// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/gated_gradient.h"
#include "compiler/kernels/group_columns.h"
#include "compiler/kernels/row_chain.h"
#include "compiler/kernels/transpose.h"
#include "compiler/plan.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Registers of an SM, which its threads share.
inline constexpr int32_t kRegistersOfSm = 65536;

// Return for how many threads of an SM the device skeleton has the compiler leave registers, unless
// the spec's `threads_per_sm` says otherwise.
int32_t usual_threads_per_sm(const RowChainSpec& spec);
int32_t usual_threads_per_sm(const TransposeSpec& spec);
int32_t usual_threads_per_sm(const ColumnCastSpec& spec);
int32_t usual_threads_per_sm(const GatedGradientSpec& spec);
int32_t usual_threads_per_sm(const GroupColumnsSpec& spec);

// Returns for how many threads of an SM registers are left.
template <typename Spec>
int32_t threads_per_sm(const Spec& spec) {
  return spec.threads_per_sm > 0 ? spec.threads_per_sm : usual_threads_per_sm(spec);
}

// Returns the registers that a thread may have: NVRTC gives them in eights.
template <typename Spec>
int32_t registers_of_thread(const Spec& spec) {
  return kRegistersOfSm / threads_per_sm(spec) / 8 * 8;
}

// Returns " threads_per_sm=1536" if the spec says so, or nothing.
template <typename Spec>
std::string threads_per_sm_text(const Spec& spec) {
  return spec.threads_per_sm > 0 ? " threads_per_sm=" + std::to_string(spec.threads_per_sm)
                                 : std::string();
}

// Returns the spec with registers for so many threads of an SM; its text names no usual number.
template <typename Spec>
Spec with_threads_per_sm(Spec spec, int32_t threads) {
  spec.threads_per_sm = threads == usual_threads_per_sm(spec) ? 0 : threads;
  return spec;
}

inline constexpr int32_t kGemmTileRows = 128, kStepBytes = 128, kBarrierBytes = 8,
                         kSwizzleBytes = 1024;
// Stages of tiles with more columns lie behind the staging of results, others before it.
inline constexpr int32_t kMostColumnsBeforeStaging = 192;

// Returns the launch of a GEMM with `stages` stages of `rows` rows of A and `columns` columns. Each
// stage has `factors` bytes of scales, and results take `staging` bytes. It must be the sum in
// GroupedGemm in templates/moejit_device/gemm; tests/compile compares the two.
LaunchShape gemm_shape(int32_t stages, int32_t rows, int32_t columns, int32_t factors,
                       int32_t staging);

}  // namespace moejit::compiler
