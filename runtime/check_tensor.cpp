// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_dims.h"
#include "runtime/call.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::runtime {

using compiler::CallDim;
using compiler::Dim;
using compiler::TensorPlan;

tl::unexpected<Error> tensor_mismatch(const TensorPlan& plan, const std::string& what,
                                      std::string hint) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: {}", plan.name, what), std::move(hint));
}

std::string wanted_shape(const TensorPlan& plan) {
  std::string text;
  for (const Dim& dim : plan.shape) {
    text += text.empty() ? "[" : ", ";
    text += call_dim(dim) ? fmt::format("{} <= {}", dim.symbol, dim.value)
                          : fmt::format("{}", dim.value);
  }
  return text + "]";
}

namespace {

tl::unexpected<Error> wrong_shape(const TensorPlan& plan, const TensorRef& tensor) {
  return tensor_mismatch(plan, fmt::format("its shape is [{}], wanted {}",
                                           fmt::join(tensor.shape, ", "), wanted_shape(plan)));
}

// A told size, with the unit in which a dimension counts it.
struct Told {
  int64_t& size;
  int64_t unit;
  std::string_view name;
};

Told told_size(ToldDims& told, CallDim dim) {
  switch (dim) {
    case CallDim::kTokens: return {told.tokens, 1, "tokens"};
    case CallDim::kRows: return {told.rows, 1, "rows"};
    case CallDim::kColumns: return {told.columns, 1, "columns"};
    case CallDim::kColumnBlocks: return {told.columns, 128, "columns"};
  }
  return {told.tokens, 1, "tokens"};
}

// The first tensor with a dimension tells its size; later tensors must agree.
Result<void> check_shape(const TensorPlan& plan, const TensorRef& tensor, ToldDims& told) {
  if (tensor.shape.size() != plan.shape.size()) return wrong_shape(plan, tensor);
  for (std::size_t i = 0; i < plan.shape.size(); ++i) {
    const Dim& dim = plan.shape[i];
    const int64_t size = tensor.shape[i];
    const std::optional<CallDim> varying = call_dim(dim);
    if (!varying) {
      if (size != dim.value) return wrong_shape(plan, tensor);
      continue;
    }
    if (size < 0 || size > dim.value) return wrong_shape(plan, tensor);
    const auto [told_before, unit, name] = told_size(told, *varying);
    if (told_before == ToldDims::kUntold) told_before = size * unit;
    if (size * unit != told_before)
      return tensor_mismatch(plan, fmt::format("it has {} {}, tensors before it have {}",
                                               size * unit, name, told_before));
  }
  return {};
}

}  // namespace

Result<void> check_type(const TensorPlan& plan, const TensorRef& tensor, ToldDims& told) {
  if (tensor.dtype != plan.dtype)
    return tensor_mismatch(
        plan,
        fmt::format("its dtype is {}, wanted {}", to_string(tensor.dtype), to_string(plan.dtype)),
        compiler::dtype_hint(plan.name, tensor.dtype));
  return check_shape(plan, tensor, told);
}

}  // namespace moejit::runtime
