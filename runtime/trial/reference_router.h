// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/router.h"
#include "runtime/check/kernel_tensors.h"
#include "runtime/reference/router.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moejit::check {

// Returns the router of the reference with a kernel's formula, over so many experts, zero experts
// included.
reference::Router reference_router(const compiler::RouterFormula& formula, int64_t experts,
                                   int64_t top_k);

// Numbers that a kernel of a router read.
struct RouterOperands {
  std::vector<float> logits, bias, expert_scale;
  std::vector<int64_t> ids;

  // `choice` is the role of the ids, or empty.
  RouterOperands(const KernelTensors& tensors, std::string_view choice);
  reference::RouterInputs inputs() const {
    return {.logits = logits, .bias = bias, .expert_scale = expert_scale, .ids = ids};
  }
};

}  // namespace moejit::check
