// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "runtime/call.h"

#include <cstdint>
#include <string>

namespace moejit::runtime {

// Sizes that the caller's tensors tell of dimensions that change per call; kUntold: none of them
// has the dimension.
struct ToldDims {
  static constexpr int64_t kUntold = -1;
  int64_t tokens = kUntold;
  int64_t rows = kUntold;
  int64_t columns = kUntold;
};

// Returns the error kTensorMismatch about a tensor.
tl::unexpected<Error> tensor_mismatch(const compiler::TensorPlan& plan, const std::string& what,
                                      std::string hint = {});

// Returns the shape that calls are to give: "[T <= 64, 256]".
std::string wanted_shape(const compiler::TensorPlan& plan);

// Checks dtype and shape against the plan. A dimension that changes per call is told by the first
// tensor that has it, and `told` has it from then on; the others have to agree. Error
// kTensorMismatch. Allocates only for errors.
Result<void> check_type(const compiler::TensorPlan& plan, const TensorRef& tensor, ToldDims& told);

}  // namespace moejit::runtime
