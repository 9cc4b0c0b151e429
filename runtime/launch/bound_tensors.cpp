// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/bound_tensors.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <string>

namespace moejit::runtime {
namespace {

using compiler::Dim;
using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;

constexpr std::uintptr_t kTensorAlignment = 16;
constexpr std::uintptr_t kWorkspaceAlignment = 256;
constexpr int64_t kUnknown = -1;

bool is_tokens(const Dim& dim) { return dim.symbol == "T"; }

bool is_aligned(const void* address, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

bool is_callers(TensorRole role) {
  return role != TensorRole::kWorkspace && role != TensorRole::kSaved;
}

// The functions from here to bind_one() run only where something is wrong.

tl::unexpected<Error> mismatch(const TensorPlan& plan, const std::string& what) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: {}", plan.name, what));
}

std::string wanted_shape(const TensorPlan& plan) {
  std::string text;
  for (const Dim& dim : plan.shape) {
    text += text.empty() ? "[" : ", ";
    text += is_tokens(dim) ? fmt::format("T <= {}", dim.value) : fmt::format("{}", dim.value);
  }
  return text + "]";
}

tl::unexpected<Error> wrong_shape(const TensorPlan& plan, const TensorRef& tensor) {
  return mismatch(plan, fmt::format("its shape is [{}], wanted {}", fmt::join(tensor.shape, ", "),
                                    wanted_shape(plan)));
}

std::string names_of(const Plan& plan, const TensorSet& wanted) {
  std::string names;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (wanted[slot]) names += (names.empty() ? "" : ", ") + plan.tensors[slot].name;
  return names;
}

tl::unexpected<Error> unknown_name(const Plan& plan, const TensorSet& wanted,
                                   std::string_view name) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: the layer {} has none of this name that a caller gives, "
                          "wanted {}",
                          name, plan.layer.name, names_of(plan, wanted)));
}

// T is told by the first tensor that has it; the others have to agree.
Result<void> check_shape(const TensorPlan& plan, const TensorRef& tensor, int64_t& tokens) {
  if (tensor.shape.size() != plan.shape.size()) return wrong_shape(plan, tensor);
  for (std::size_t i = 0; i < plan.shape.size(); ++i) {
    const Dim& dim = plan.shape[i];
    const int64_t size = tensor.shape[i];
    if (!is_tokens(dim)) {
      if (size != dim.value) return wrong_shape(plan, tensor);
      continue;
    }
    if (size < 0 || size > dim.value) return wrong_shape(plan, tensor);
    if (tokens == kUnknown) tokens = size;
    if (size != tokens)
      return mismatch(plan,
                      fmt::format("it has {} tokens, tensors before it have {}", size, tokens));
  }
  return {};
}

int64_t bytes_of(const TensorPlan& plan, int64_t tokens) {
  int64_t bytes = size_bytes(plan.dtype);
  for (const Dim& dim : plan.shape) bytes *= is_tokens(dim) ? tokens : dim.value;
  return bytes;
}

Result<void> bind_one(const TensorPlan& plan, const TensorRef& tensor, std::size_t slot,
                      int64_t& tokens, BoundTensors& bound) {
  if (bound.is_bound[slot]) return mismatch(plan, "it is given twice");
  if (tensor.dtype != plan.dtype)
    return mismatch(plan, fmt::format("its dtype is {}, wanted {}", to_string(tensor.dtype),
                                      to_string(plan.dtype)));
  MOEJIT_TRY(check_shape(plan, tensor, tokens));
  const int64_t bytes = bytes_of(plan, std::max<int64_t>(tokens, 0));
  if (tensor.data == nullptr && bytes > 0)
    return mismatch(plan, fmt::format("its address is null, wanted {} bytes", bytes));
  if (!is_aligned(tensor.data, kTensorAlignment))
    return mismatch(plan, fmt::format("its address {} is not a multiple of {}",
                                      fmt::ptr(tensor.data), kTensorAlignment));
  bound.address[slot] = tensor.data;
  bound.bytes[slot] = bytes;
  bound.is_bound[slot] = true;
  return {};
}

// One of the two blocks of memory of a call.
Result<void> check_block(std::string_view name, const void* address, int64_t bytes,
                         int64_t wanted_bytes) {
  if (bytes < wanted_bytes)
    return fail(Stage::kLaunch, ErrorCode::kWorkspaceTooSmall,
                fmt::format("the {} has {} bytes, wanted {}", name, bytes, wanted_bytes),
                "ask for workspace_bytes() and saved_bytes() of the prepared layer");
  if (address == nullptr && wanted_bytes > 0)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address is null, wanted {} bytes", name, wanted_bytes));
  if (!is_aligned(address, kWorkspaceAlignment))
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the {}'s address {} is not a multiple of {}", name, fmt::ptr(address),
                            kWorkspaceAlignment));
  return {};
}

}  // namespace

TensorSet tensors_of_call(const Plan& plan, compiler::Phase phase) {
  TensorSet set;
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    set[slot] = is_callers(plan.tensors[slot].role) && is_used(plan, plan.tensors[slot], phase);
  return set;
}

Result<void> bind_tensors(const Plan& plan, const TensorSet& wanted,
                          std::span<const TensorRef> tensors, BoundTensors& bound) {
  int64_t tokens = kUnknown;
  for (const TensorRef& tensor : tensors) {
    const auto found = std::ranges::find(plan.tensors, tensor.name, &TensorPlan::name);
    if (found == plan.tensors.end() || !is_callers(found->role))
      return unknown_name(plan, wanted, tensor.name);
    const auto slot = static_cast<std::size_t>(found - plan.tensors.begin());
    if (!wanted[slot]) continue;
    MOEJIT_TRY(bind_one(*found, tensor, slot, tokens, bound));
  }
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot)
    if (wanted[slot] && !bound.is_bound[slot] && !plan.tensors[slot].is_optional)
      return fail(
          Stage::kLaunch, ErrorCode::kMissingTensor,
          fmt::format("tensor {} is missing, wanted {} {}", plan.tensors[slot].name,
                      to_string(plan.tensors[slot].dtype), wanted_shape(plan.tensors[slot])));
  bound.tokens = std::max<int64_t>(tokens, 0);
  return {};
}

Result<void> bind_memory(const Plan& plan, const CallMemory& memory, BoundTensors& bound) {
  MOEJIT_TRY(
      check_block("workspace", memory.workspace, memory.workspace_bytes, plan.workspace_bytes));
  MOEJIT_TRY(check_block("saved block", memory.saved, memory.saved_bytes, plan.saved_bytes));
  for (std::size_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const TensorPlan& tensor = plan.tensors[slot];
    if (is_callers(tensor.role)) continue;
    bound.address[slot] = tensor.role == TensorRole::kSaved
                              ? static_cast<std::byte*>(memory.saved) + tensor.saved_offset
                              : static_cast<std::byte*>(memory.workspace) + tensor.workspace_offset;
    bound.bytes[slot] = bytes_of(tensor, bound.tokens);
    bound.is_bound[slot] = true;
  }
  return {};
}

}  // namespace moejit::runtime
