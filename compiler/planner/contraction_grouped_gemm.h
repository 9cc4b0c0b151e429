// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/grouped_gemm.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::compiler {

// Times at which CTAs start, where they do not all start at once.
inline constexpr int32_t kStartTimes = 8;

// Completes a spec: chooses the column tiles and how tiles are stored. Its problem must be set:
// scales, output, local_experts, rows, n, and also sections and section_rows if A's rows are in
// several sections. `mean_columns`, the expected tokens of a group, affects speed only.
ContractionGroupedGemmSpec choose_tiles(ContractionGroupedGemmSpec problem, int64_t mean_columns);

// Returns sentences that explain the choices of choose_tiles().
std::vector<std::string> tile_reasons(const ContractionGroupedGemmSpec& spec, int64_t mean_columns);

// Returns the tensor maps of a contraction-grouped GEMM's parameter record. A is [columns / 128,
// rows, 128], B [columns / 128, n, 128] and D [E, rows, n]; `columns` is a multiple of 128. In bf16
// A is [columns, rows] and B [columns, n].
std::vector<TensorMapPlan> contraction_grouped_gemm_tensor_maps(
    const ContractionGroupedGemmSpec& spec, int64_t columns, const GemmTensors& tensors);

// Returns a contraction-grouped GEMM with its spec, tensor maps and the reasons for its choices.
// The options' records name the choices, or choose_tiles() makes them.
KernelPlan contraction_grouped_gemm_kernel(const ContractionGroupedGemmSpec& problem,
                                           int64_t columns, int64_t mean_columns,
                                           const GemmTensors& tensors, const PlanOptions& options);

}  // namespace moejit::compiler
