// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernels/column_sums.h"

#include <cstdint>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
struct Operation;

// Adds up the rows of each group. Reads input [P, sections * pitch], counts and offs; also probs
// [P] if each row is multiplied by its probability. Writes output [E, sections * section_columns].
struct BiasGradient {
  ColumnSumsSpec spec;  // all but the input's type
};

// Computes the part of the probability's gradient that comes from a bias multiplied by the
// probability. It is the product of each row with the bias of its group. Reads input [P, columns],
// bias [E, columns], counts and offs. Writes output [P].
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
