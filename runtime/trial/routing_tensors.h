// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/host_tensor.h"
#include "runtime/reference/route.h"
#include "runtime/trial/inputs.h"

#include <cstdint>
#include <vector>

namespace moejit::trial {

// Returns topk_ids or tokens_per_expert, I32 or I64, as 64-bit numbers.
std::vector<int64_t> expert_ids(const runtime::HostTensor& topk_ids);

// Returns topk_probs, F32 or BF16, as floats, which represent every value of both types exactly.
std::vector<float> probabilities(const runtime::HostTensor& topk_probs);

// Make tensors of these types from numbers. Probabilities are rounded to nearest even.
runtime::HostTensor make_topk_ids(compiler::DType dtype, std::vector<int64_t> shape,
                                  const std::vector<int64_t>& ids);
runtime::HostTensor make_topk_probs(compiler::DType dtype, std::vector<int64_t> shape,
                                    const std::vector<float>& probs);

// The sizes of a random call of an operation, and its groups of rows or columns, if it has any.
struct RandomGroups {
  compiler::CallDims dims;
  std::vector<int32_t> ids;  // [T, K], if tokens are routed
  reference::Route route;
  std::vector<int32_t> column_starts;  // [E + 1], multiples of 128, if rows become columns
};

// Makes the sizes and groups of a call with `size` in the dimension of call_size(). Tokens are
// routed as a layer's tokens are. If an operation has groups but no tokens, the groups fill P or C
// as far as pad rows let them. Rows that do not fit are cut.
RandomGroups random_groups(const compiler::Plan& plan, int64_t size, const RandomInputs& random);

}  // namespace moejit::trial
