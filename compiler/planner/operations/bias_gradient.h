// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/column_sums.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Adds up the rows of each group. Reads input [P, sections * pitch], counts, offs and, where each
// row counts with its probability, probs [P]. Writes output [E, sections * section_columns].
struct BiasGradient {
  ColumnSumsSpec spec;  // all but the input's type
};

// Multiplies each row with the bias of its group: what a bias that meets the probability adds to
// the probability's gradient. Reads input [P, columns], bias [E, columns], counts and offs. Writes
// output [P].
struct BiasDprobs {
  int32_t local_experts = 0;
  int32_t columns = 0;
};

KernelPlan make_kernel(const Operation& operation, const BiasGradient& gradient,
                       const KernelContext& context);
KernelPlan make_kernel(const Operation& operation, const BiasDprobs& dprobs,
                       const KernelContext& context);
inline void narrow(Operation&, const BiasGradient&) {}
inline void narrow(Operation&, const BiasDprobs&) {}

}  // namespace moejit::compiler
