// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

namespace moejit::compiler {

// How a kernel is launched for the largest input of the layer.
LaunchShape plan_launch(const KernelPlan& kernel, const Layer& layer);

// Fills min_bytes and multiply_adds for T = max_tokens and `rows` permuted rows of which all are
// written (pad rows too): each input read once, each output written once. Design rule: a
// memory-bound kernel is judged by these bytes over its time.
struct Work {
  int64_t min_bytes = 0;
  int64_t multiply_adds = 0;
};
Work count_work(const KernelPlan& kernel, const Layer& layer, int64_t tokens, int64_t rows);

// Gives every kWorkspace tensor its lifetime and an offset, and returns the bytes needed. Tensors
// whose lifetimes do not overlap may share memory, unless intermediates are kept.
int64_t plan_workspace(Plan& plan, const PlanOptions& options);

}  // namespace moejit::compiler
