// SPDX-License-Identifier: Apache-2.0
#include "compiler/call_dims.h"

#include "compiler/support/integer.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

constexpr int64_t kColumnsOfBlock = 128;

// Bounds a size by a line: T tokens have T * K rows, and every expert adds at most `alignment` - 1
// pad rows. The fixed part also covers the size at max_tokens and the size in a call without
// tokens, which may be larger.
LinearBound bound_of(const CallBounds& bounds, int64_t CallDims::*size, int64_t alignment) {
  const int64_t most = call_dims(bounds, bounds.max_tokens).*size;
  const int64_t pad_rows = bounds.groups * (alignment - 1);
  const int64_t fixed = std::max(
      {pad_rows, call_dims(bounds, 0).*size, most - bounds.max_tokens * int64_t{bounds.top_k}});
  return {.fixed = std::min(fixed, most), .per_token = bounds.top_k};
}

LinearBound bound_columns(const CallBounds& bounds) {
  if (bounds.splits_alignment % kColumnsOfBlock == 0)
    return bound_of(bounds, &CallDims::columns, bounds.splits_alignment);
  LinearBound bound = bound_of(bounds, &CallDims::columns, kColumnsOfBlock);
  bound.fixed += kColumnsOfBlock - 1;  // C is rounded up
  return bound;
}

}  // namespace

int64_t most_experts(const CallBounds& bounds, int64_t tokens) {
  return std::min<int64_t>(bounds.groups, tokens * bounds.top_k);
}

int64_t most_permuted_rows(const CallBounds& bounds, int64_t tokens) {
  const int64_t alignment = bounds.splits_alignment;
  const int64_t rows = tokens * bounds.top_k + most_experts(bounds, tokens) * (alignment - 1);
  // Every group begins at a multiple of the alignment.
  return std::min(rows / alignment * alignment, bounds.max_permuted_rows);
}

int64_t gradient_columns(const CallBounds& bounds) {
  if (bounds.splits_alignment % 128 == 0) return bounds.max_permuted_rows;
  return most_gradient_columns(bounds, bounds.slots > 0 ? bounds.slots : bounds.max_tokens);
}

int64_t most_gradient_columns(const CallBounds& bounds, int64_t tokens) {
  constexpr int64_t kStep = 128;
  if (bounds.splits_alignment % kStep == 0) return most_permuted_rows(bounds, tokens);
  const int64_t rows = tokens * bounds.top_k + most_experts(bounds, tokens) * (kStep - 1);
  return ceil_div(rows, kStep) * kStep;
}

CallBounds call_bounds(const Layer& layer) {
  const int64_t ranks = layer.expert_parallel.ranks;
  return {.max_tokens = layer.max_tokens,
          .top_k = layer.top_k,
          .groups = layer.local_experts,
          .splits_alignment = layer.splits_alignment,
          .max_permuted_rows = layer.max_permuted_rows,
          .experts = layer.experts,
          .slots = ranks > 1 ? ranks * layer.max_tokens : 0};
}

int64_t CallDims::size(CallDim dim) const {
  switch (dim) {
    case CallDim::kTokens: return tokens;
    case CallDim::kRows: return rows;
    case CallDim::kColumns: return columns;
    case CallDim::kColumnBlocks: return columns / kColumnsOfBlock;
  }
  return 0;
}

CallDims call_dims(const CallBounds& bounds, int64_t tokens) {
  if (tokens == bounds.max_tokens || bounds.slots > 0)
    return {
        .tokens = tokens, .rows = bounds.max_permuted_rows, .columns = gradient_columns(bounds)};
  // Tensor maps cannot be empty, and some kernels run in calls without tokens too.
  const int64_t some = std::max<int64_t>(tokens, 1);
  return {.tokens = tokens,
          .rows = most_permuted_rows(bounds, some),
          .columns = most_gradient_columns(bounds, some)};
}

std::optional<CallDim> call_dim(const Dim& dim) {
  // Every call asks this for every dimension of its tensors, so letters are compared as letters.
  const std::string& symbol = dim.symbol;
  if (symbol.size() != 1)
    return symbol == "C/128" ? std::optional(CallDim::kColumnBlocks) : std::nullopt;
  switch (symbol.front()) {
    case 'T': return CallDim::kTokens;
    case 'P': return CallDim::kRows;
    case 'C': return CallDim::kColumns;
    default: return std::nullopt;
  }
}

std::optional<CallDim> call_dim(const TensorPlan& tensor) {
  for (const Dim& dim : tensor.shape)
    if (const std::optional<CallDim> found = call_dim(dim)) return found;
  return std::nullopt;
}

int64_t size_in_call(const Dim& dim, const CallDims& dims) {
  const std::optional<CallDim> found = call_dim(dim);
  return found ? dims.size(*found) : dim.value;
}

LinearBound bound_bytes(const CallBounds& bounds, CallDim dim, int64_t unit_bytes) {
  const auto times = [&](const LinearBound& bound, int64_t divisor) -> LinearBound {
    return {.fixed = ceil_div(unit_bytes * bound.fixed, divisor),
            .per_token = ceil_div(unit_bytes * bound.per_token, divisor)};
  };
  switch (dim) {
    case CallDim::kTokens: return {.fixed = 0, .per_token = unit_bytes};
    case CallDim::kRows:
      return times(bound_of(bounds, &CallDims::rows, bounds.splits_alignment), 1);
    case CallDim::kColumns: return times(bound_columns(bounds), 1);
    case CallDim::kColumnBlocks: return times(bound_columns(bounds), kColumnsOfBlock);
  }
  return {};
}

}  // namespace moejit::compiler
