// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operation.h"

#include <span>

namespace moejit::compiler {

// Sets the lifetime and the offset of every kWorkspace tensor, and returns the bytes needed.
// Tensors whose lifetimes do not overlap may share memory, unless intermediates are kept.
// `operations` are the kernels' ones; without any, one call runs all kernels.
int64_t plan_workspace(Plan& plan, std::span<const Operation* const> operations,
                       const PlanOptions& options);

// Gives every kSaved tensor an offset of its own, and returns the bytes needed.
int64_t plan_saved(Plan& plan);

// Gives every kDeferred tensor an offset of its own, and returns the bytes needed.
int64_t plan_deferred(Plan& plan);

}  // namespace moejit::compiler
