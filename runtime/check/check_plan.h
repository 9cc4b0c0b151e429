// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/check/tensor_check.h"
#include "runtime/host_tensor.h"

#include <span>
#include <string_view>
#include <vector>

namespace moejit::check {

// Compares what the kernels of these calls wrote with the CPU reference. The reference computes
// from what each kernel itself read, so only a kernel that is wrong gets the blame. `inputs` are
// the tensors that the calls were given. `results` are all other tensors whose contents are known
// after the calls, with the calls' T and the actual permuted rows. If the plan keeps its
// intermediates, everything that its kernels wrote is compared. Names that no call of the plan has
// are ignored. Gradients that calls add to are compared if `inputs` has what they held before. If
// the routing differs, later kernels are not compared, since it decides how their tensors are laid
// out. With `written`, compares only kernels that write it.
std::vector<TensorCheck> check_plan(const compiler::Plan& plan,
                                    std::span<const std::string_view> calls,
                                    const runtime::TensorMap& inputs,
                                    const runtime::TensorMap& results,
                                    std::string_view written = {});

}  // namespace moejit::check
