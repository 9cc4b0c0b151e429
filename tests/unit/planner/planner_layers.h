// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <gtest/gtest.h>

namespace moejit::compiler {

// 4096 tokens, top-8 of 256 experts, all of them local: nothing is dispatched.
inline Layer dsv3_like_layer() {
  Layer layer{.name = "dsv3-like",
              .experts = 256,
              .local_experts = 256,
              .top_k = 8,
              .hidden = 7168,
              .intermediate = 2048,
              .splits_alignment = 128,
              .max_tokens = 4096};
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

inline Plan plan_of(const Layer& layer, const PlanOptions& options = {}) {
  Result<Plan> plan = plan_layer(layer, Target{}, options);
  EXPECT_TRUE(plan) << to_string(plan.error());
  return std::move(*plan);
}

inline const KernelPlan* find_kernel(const Plan& plan, std::string_view operation) {
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.operation == operation) return &kernel;
  return nullptr;
}

}  // namespace moejit::compiler
