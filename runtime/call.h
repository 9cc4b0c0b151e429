// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moejit::runtime {

// Device memory under the tensor's name in the plan. `shape` is checked against the plan: a symbol
// such as T may be smaller than its bound, everything else must be equal.
struct TensorRef {
  std::string_view name;
  compiler::DType dtype = compiler::DType::kU8;
  std::span<const int64_t> shape;
  void* data = nullptr;  // 16-byte aligned; may be null if the tensor has no elements
};

// The blocks of memory that a call uses besides its tensors. Their addresses are multiples of the
// device's block_alignment(). They have at least the bytes that sizes() of the called object gives
// for the T of the call. The workspace is free again when the call is done. The saved block keeps
// its contents from a forward to its backward call (or to its weights half). It may be null for
// layers without backward. The deferred block keeps its contents from a data half to its weights
// half. It may be null except in backward calls of layers with halves. A copy of a block at another
// address serves as well: contents do not depend on addresses.
struct CallMemory {
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
  void* saved = nullptr;
  int64_t saved_bytes = 0;
  void* deferred = nullptr;
  int64_t deferred_bytes = 0;
};

// Is called before and after each kernel of a call, with its index into Plan::kernels, for tools
// that time or dump.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual Result<void> before(std::size_t kernel_index) = 0;
  virtual Result<void> after(std::size_t kernel_index) = 0;
};

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
