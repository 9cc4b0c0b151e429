// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/amax_columns.h"
#include "compiler/layer.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Copies scales of an operand of fc1 and of one of fc2 out of their states. Reads fc1_stored and
// fc2_stored, the scales of a state. For weights it reads skip [1] too, a word that makes the
// kernel do nothing if it is not 0. Writes fc1_scale [E] and fc2_scale [E], each only if wanted,
// with their inverses as its scale_inv.
struct TakeScales {
  int32_t experts = 0;
  AmaxColumns columns = {};
};

// Moves the histories of fc1 and fc2 on by a step and finds the scales of the next one. Reads and
// writes fc1_amax_history [L, columns], fc1_scale [columns], and fc2_amax_history and fc2_scale.
struct UpdateScales {
  int32_t columns = 0;
  int32_t history_length = 0;
  float largest = 0.0f;  // the format's largest number times 2^-margin
  AmaxComputeAlgo algorithm = AmaxComputeAlgo::kMax;
};

KernelPlan make_kernel(const Operation& operation, const TakeScales& take,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const UpdateScales& update,
                       const KernelContext& context);
inline void narrow(Operation&, const TakeScales&) {}
inline void narrow(Operation&, const UpdateScales&) {}

}  // namespace moejit::compiler
