// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operations.h"

#include <string_view>

namespace moejit::compiler {

// What the kernels of both passes are made of.

// Smallest amax that activations and gradients are scaled for, so that an all-zero row gets the
// scale 2^-42 and cannot raise its neighbours' (semantics of the FP8-Flow-MoE dispatch quantiser).
inline constexpr float kActivationEpsilon = 1e-10f;

// Scale blocks that share a scale are quantised together.
QuantizeStage quantize_stage(const Layer& layer);

// `a` and `b` have their scales beside them: x_q and x_scale_inv.
KernelPlan grouped_gemm(const Layer& layer, const GroupedGemmSpec& problem, std::string_view a,
                        std::string_view b, std::string_view d);

// The kernel of an operation of the backward pass that the forward pass has not.
KernelPlan make_backward_kernel(Operation operation, const Layer& layer,
                                const PlanOptions& options);

}  // namespace moejit::compiler
