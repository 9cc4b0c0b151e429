// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/weight_check.h"

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Looks whether weights have changed. Reads w1 and w2 and skip [1], a word that makes them count as
// unchanged if it is not 0. Reads and writes digest, whose first word the casts behind it take as
// their skip. Sets status [1] to 0 if there is one: a fill of its own takes 5 us of a graph.
struct CheckWeights {
  WeightCheckSpec spec;
};

KernelPlan make_kernel(const Operation& operation, const CheckWeights& check,
                       const KernelContext& context);
inline void narrow(Operation&, const CheckWeights&) {}

}  // namespace moejit::compiler
