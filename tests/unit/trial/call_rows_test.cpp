// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/operation_inputs.h"

#include <gtest/gtest.h>

namespace moejit::trial {
namespace {

using runtime::make_tensor;
using runtime::TensorMap;

// Three rows of expert 0, one of expert 1, none of expert 2; the second token has none.
compiler::CallRows rows_beside(compiler::SharedExperts shared) {
  const compiler::Layer layer{.experts = 3,
                              .local_experts = 3,
                              .top_k = 2,
                              .shared = shared,
                              .hidden = 16,
                              .intermediate = 16,
                              .splits_alignment = 16,
                              .max_tokens = 4,
                              .max_permuted_rows = 96};
  const TensorMap inputs = {{"topk_ids", make_tensor<int32_t>(compiler::DType::kI32, {4, 2},
                                                              {0, -1, -1, -1, 1, 0, -1, 0})}};
  const compiler::Plan plan{.layer = layer, .bounds = call_bounds(layer)};
  return count_rows(plan, {.dims = {.tokens = 4}, .tensors = inputs});
}

TEST(CallRows, AreCountedFromTheRouting) {
  const compiler::CallRows rows = rows_beside({});
  EXPECT_EQ(rows.tokens, 4);
  EXPECT_EQ(rows.routed, 4);
  EXPECT_EQ(rows.padded, 32);
  EXPECT_EQ(rows.routed_tokens, 3);
  EXPECT_EQ(rows.routed_experts, 2);
}

TEST(CallRows, HaveSharedExperts) {
  const compiler::CallRows rows = rows_beside({.experts = 2});
  EXPECT_EQ(rows.routed, 12);
  EXPECT_EQ(rows.padded, 64);
  EXPECT_EQ(rows.routed_tokens, 4);
  EXPECT_EQ(rows.routed_experts, 4);
}

}  // namespace
}  // namespace moejit::trial
