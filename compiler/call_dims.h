// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_bounds.h"
#include "compiler/plan.h"

#include <cstdint>
#include <optional>

namespace moejit::compiler {

// Holds the sizes of the dimensions that follow from the tokens of one call.
struct CallDims {
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t size(CallDim dim) const;
};

// Returns the sizes in a call over T tokens, from 0 to max_tokens. P is the most rows that any
// routing of the tokens needs, and never more than max_permuted_rows. C is the most columns in the
// same way. P and C are never 0 and never fall as T grows; at max_tokens they have the sizes of the
// plan's tensors. With slots they have these sizes in every call.
CallDims call_dims(const CallBounds& bounds, int64_t tokens);

// Returns which CallDim a dimension of a plan's tensor is; none if every call has the plan's size.
std::optional<CallDim> call_dim(const Dim& dim);
std::optional<CallDim> call_dim(const TensorPlan& tensor);  // of its one such dimension

// Returns the size of a dimension of a plan's tensor in a call.
int64_t size_in_call(const Dim& dim, const CallDims& dims);

// A linear bound: `fixed` + T * `per_token`.
struct LinearBound {
  int64_t fixed = 0;
  int64_t per_token = 0;
  bool operator==(const LinearBound&) const = default;
};

// Bounds the bytes of a tensor for every T; the tensor takes `unit_bytes` for each element of
// `dim`.
LinearBound bound_bytes(const CallBounds& bounds, CallDim dim, int64_t unit_bytes);

// Returns how many groups T tokens can reach.
int64_t most_experts(const CallBounds& bounds, int64_t tokens);

// Returns the most permuted rows that T tokens can need, pad rows included: never more than the
// layer's P.
int64_t most_permuted_rows(const CallBounds& bounds, int64_t tokens);

// Returns C, the columns of wgrad's operands: every group starts at a multiple of 128.
int64_t gradient_columns(const CallBounds& bounds);
// Returns how many columns of wgrad's operands T tokens can fill, a multiple of 128.
int64_t most_gradient_columns(const CallBounds& bounds, int64_t tokens);

}  // namespace moejit::compiler
