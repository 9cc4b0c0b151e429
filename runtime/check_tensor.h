// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "runtime/call.h"

#include <cstdint>
#include <string>

namespace moejit::runtime {

// Sizes of the dimensions that change per call, as the caller's tensors tell them. kUntold: none of
// the tensors has the dimension.
struct ToldDims {
  static constexpr int64_t kUntold = -1;
  int64_t tokens = kUntold;
  int64_t rows = kUntold;
  int64_t columns = kUntold;
};

// Returns the error kTensorMismatch about a tensor.
tl::unexpected<Error> tensor_mismatch(const compiler::TensorPlan& plan, const std::string& what,
                                      std::string hint = {});

// Returns the shape that calls must give: "[T <= 64, 256]".
std::string wanted_shape(const compiler::TensorPlan& plan);

// Checks dtype and shape against the plan. The first tensor with a dimension that changes per call
// sets it in `told`; later tensors must agree. Error kTensorMismatch. Allocates only for errors.
Result<void> check_type(const compiler::TensorPlan& plan, const TensorRef& tensor, ToldDims& told);

}  // namespace moejit::runtime
