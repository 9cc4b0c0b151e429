// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/check/tensor_check.h"
#include "runtime/host_tensor.h"

#include <span>
#include <string_view>
#include <vector>

namespace moejit::check {

// Compares what the kernels of these phases wrote with the CPU reference, each on what it read
// itself, so that the kernel is blamed that differs. `inputs` are the tensors that the calls were
// given, `results` all the others whose contents are known after them, with the T of the calls and
// as many permuted rows as there are; the kernels of a plan with kept intermediates are compared
// completely. Gradients have been overwritten. Where the routing differs nothing behind it is
// compared, which is laid out by it.
std::vector<TensorCheck> check_plan(const compiler::Plan& plan,
                                    std::span<const compiler::Phase> phases,
                                    const runtime::TensorMap& inputs,
                                    const runtime::TensorMap& results);

// Compares so only what the kernels wrote that write `tensor`.
std::vector<TensorCheck> check_writers(const compiler::Plan& plan,
                                       std::span<const compiler::Phase> phases,
                                       std::string_view tensor, const runtime::TensorMap& inputs,
                                       const runtime::TensorMap& results);

}  // namespace moejit::check
