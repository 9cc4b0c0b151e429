// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/layer.h"
#include "compiler/plan.h"
#include "compiler/planner/graph.h"
#include "compiler/planner/operation.h"
#include "compiler/target.h"

#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

// Checks that this version can run a layer on a target; an error names the field and what can be
// run. A layer that passes can be planned.
Result<void> check_support(const Layer& layer, const Target& target);

// Checks that a target runs a complete kernel of a plan about `subject`. Error kUnsupported: its
// GPUs lack instructions or shared memory.
Result<void> check_target(const KernelPlan& kernel, const Target& target, std::string_view subject);

// Returns the operations of a layer's weights, forward and backward phases, without any fusion and
// with every gradient that the layer has. The formats of the recipe decide which casts there are.
Graph layer_graph(const Layer& layer);

// Returns the tensors that a plan computes for callers: y and the gradients that the layer
// computes.
std::vector<std::string> layer_outputs(const Layer& layer);

// Sets the lifetime and the offset of every kWorkspace tensor, and returns the bytes needed.
// Tensors whose lifetimes do not overlap may share memory, unless intermediates are kept.
// `operations` are the kernels' ones; without any, one call runs all kernels.
int64_t plan_workspace(Plan& plan, std::span<const Operation* const> operations,
                       const PlanOptions& options);

// Gives every kSaved tensor an offset of its own, and returns the bytes needed.
int64_t plan_saved(Plan& plan);

// Gives every kDeferred tensor an offset of its own, and returns the bytes needed.
int64_t plan_deferred(Plan& plan);

// Fill the plan's calls and absent calls: of a layer, and of a plan with the one call "run", which
// runs all kernels. Kernels, collectives and tensors of the plan are complete. `operations` are the
// kernels' ones.
void make_layer_calls(const Layer& layer, std::span<const Operation* const> operations, Plan& plan);
void make_operation_calls(Plan& plan);

// Lets launches of a forward-only layer's small calls overlap, where kernels of a kind that can
// follow each other. Calls are complete. Adds a reason to the plan.
void overlap_launches(const Layer& layer, Plan& plan);

// Sets what the launch of a kernel needs and counts its work; spec, arguments and tensor maps are
// set already. The launch suits calls within the bounds. The work is the work of a call over
// max_tokens tokens with all their choices on this rank.
void complete_kernel(KernelPlan& kernel, const CallBounds& bounds);

// Returns the bounds of calls over `rows` permuted rows, or columns, in `groups` groups, as if each
// row were a token with one choice.
CallBounds bounds_of_rows(int64_t rows, int64_t groups, int32_t splits_alignment = 1);

}  // namespace moejit::compiler
