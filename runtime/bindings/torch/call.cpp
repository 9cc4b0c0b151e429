// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/call.h"

#include "runtime/bindings/graph/group_plans.h"
#include "runtime/bindings/torch/blocks.h"
#include "runtime/bindings/torch/failure.h"

#include <algorithm>
#include <string>

namespace moejit::torch {
namespace {

using Kind = CallArgument::Kind;

std::string bound_text(const PlannedTensor& planned, std::size_t dim, int64_t given) {
  const std::string bound = std::to_string(planned.shape[dim]);
  if (planned.call_dims[dim] == CallDim::kTokens)
    return "it has " + std::to_string(given) + " tokens, wanted at most " + bound +
           ", which is max_tokens of the description";
  return "dimension " + std::to_string(dim) + " is " + std::to_string(given) + ", wanted at most " +
         bound;
}

void check_block(const Tensor& block, const std::string& name, int64_t bytes) {
  if (block.element_count() == bytes && block.dl().dtype.bits == 8) return;
  fail(MOEJIT_ERROR_TENSOR_MISMATCH,
       "tensor " + name + ": it has " + std::to_string(block.element_count()) + " elements of " +
           std::to_string(block.dl().dtype.bits) + " bits, wanted " + std::to_string(bytes) +
           " of 8",
       "give the block that the operator before it returned, for the same plan");
}

// Returns whether a tensor of a call stands for one that is not there.
bool is_absent(const CallArgument& argument, const Tensor& tensor) {
  return tensor.element_count() == 0 &&
         (argument.is_optional || (tensor.dl().ndim == 1 && argument.planned->shape.size() != 1));
}

}  // namespace

void CallSizes::read(const PlannedTensor& planned, const Tensor& tensor) {
  for (std::size_t i = 0; i < planned.shape.size(); ++i) {
    if (planned.call_dims[i] == CallDim::kNone) continue;
    std::optional<int64_t>& size = told_[static_cast<std::size_t>(planned.call_dims[i])];
    const int64_t given = tensor.size(static_cast<int32_t>(i));
    if (!size && given >= 0) size = given;
    if (given > planned.shape[i])
      fail(MOEJIT_ERROR_TENSOR_MISMATCH,
           "tensor " + planned.name + ": " + bound_text(planned, i, given),
           "describe the layer or the operation with a larger bound");
  }
}

int64_t CallSizes::tokens() const {
  for (const CallDim dim : {CallDim::kTokens, CallDim::kRows, CallDim::kColumns})
    if (of(dim)) return *of(dim);
  return of(CallDim::kColumnBlocks).value_or(0) * 128;
}

Call::Call(const ReadyPlan& ready, const CallRow& row, DLDevice device)
    : ready_(ready), row_(row), device_(device) {
  call_.struct_size = sizeof call_;
  call_.tensors = tensors_.data();
  call_.stream = current_stream(device);
}

void Call::read_sizes(const CallArgument& argument, const Tensor& tensor) {
  if (argument.planned != nullptr && !is_absent(argument, tensor))
    sizes_.read(*argument.planned, tensor);
}

void Call::add(const CallArgument& argument, const Tensor& tensor) {
  switch (argument.kind) {
    case Kind::kTensor: return add_tensor(argument, tensor);
    case Kind::kQuantized: return add_quantized(argument, tensor);
    case Kind::kSaved:
      check_block(tensor, argument.name, bytes_of(argument));
      call_.saved = tensor.dl().data;
      call_.saved_bytes = tensor.element_count();
      return;
    case Kind::kDeferred:
      check_block(tensor, argument.name, bytes_of(argument));
      call_.deferred = tensor.dl().data;
      call_.deferred_bytes = tensor.element_count();
      return;
  }
}

void Call::add_tensor(const CallArgument& argument, const Tensor& tensor) {
  if (argument.is_shape_only) return add_shape(*argument.planned);
  if (is_absent(argument, tensor)) return;  // the library tells whether it is missing
  if (!argument.may_be_copied || !tensor.needs_copy())
    return add_to_record(argument.name.c_str(), &tensor.dl());
  copies_.reserve(std::max(row_.reads.size(), row_.named_reads.size()));  // so that none moves
  add_to_record(argument.name.c_str(), &copies_.emplace_back(tensor.copy()).dl());
}

void Call::add_shape(const PlannedTensor& planned) {
  shape_ = shape_of(planned);
  shape_only_.device = device_;
  shape_only_.dtype = planned.dtype;
  shape_only_.ndim = static_cast<int32_t>(planned.shape.size());
  shape_only_.shape = shape_.data();
  add_to_record(planned.name.c_str(), &shape_only_);
}

void Call::add_quantized(const CallArgument& argument, const Tensor& block) {
  check_block(block, argument.name, argument.block->bytes);
  for (const PlannedTensor* tensor : argument.slices) {
    if (slice_count_ == slices_.size())
      fail(MOEJIT_ERROR_INTERNAL, "the plan has more quantized weights than a call takes");
    DLTensor& part = slices_[slice_count_++];
    part = block.dl();
    part.byte_offset = static_cast<uint64_t>(tensor->quantized_offset);
    part.dtype = tensor->dtype;
    part.ndim = static_cast<int32_t>(tensor->shape.size());
    part.shape = const_cast<int64_t*>(tensor->shape.data());
    part.strides = nullptr;
    add_to_record(tensor->name.c_str(), &part);
  }
}

void Call::add_to_record(const char* name, const DLTensor* tensor) {
  if (call_.tensor_count == tensors_.size())
    fail(MOEJIT_ERROR_INTERNAL, "the plan has more tensors than a call takes");
  tensors_[call_.tensor_count++] = {name, tensor};
}

int64_t Call::bytes_of(const CallArgument& argument) const {
  switch (argument.kind) {
    case Kind::kQuantized: return argument.block->bytes;
    case Kind::kSaved: return block_sizes().saved_bytes;
    case Kind::kDeferred: return block_sizes().deferred_bytes;
    default: return 0;
  }
}

std::array<int64_t, 4> Call::shape_of(const PlannedTensor& planned) const {
  std::array<int64_t, 4> shape{};
  for (std::size_t i = 0; i < planned.shape.size(); ++i) {
    const CallDim dim = planned.call_dims[i];
    const std::optional<int64_t> told = dim == CallDim::kNone ? planned.shape[i] : sizes_.of(dim);
    if (told) {
      shape[i] = *told;
      continue;
    }
    moejit_tensor_place place{};
    place.struct_size = sizeof place;
    check(moejit_plan_get_tensor_place(ready_.plan, planned.index, sizes_.tokens(), &place));
    shape[i] = place.shape[i];
  }
  return shape;
}

void Call::fill_new(const Tensor& tensor) const {
  if (const std::optional<std::uint8_t> value = fill_of(device_))
    fill(tensor, ready_.device, 0, tensor.byte_count(), *value);
}

Tensor Call::make(const CallArgument& argument) const {
  if (argument.kind == Kind::kTensor) {
    const std::array<int64_t, 4> shape = shape_of(*argument.planned);
    Tensor tensor({shape.data(), argument.planned->shape.size()}, argument.planned->dtype, device_);
    // In a CUDA graph a kernel of torch's takes 2 us less than a fill between two kernels.
    if (argument.is_read)
      tensor.zero();
    else
      fill_new(tensor);
    return tensor;
  }
  Tensor block = make_block(bytes_of(argument), device_);
  fill_new(block);
  if (argument.digest != nullptr)  // so the call quantizes, whatever the weights are
    fill(block, ready_.device, argument.digest->quantized_offset, argument.digest->bytes, 0);
  return block;
}

void Call::run(const char* name) {
  Tensor workspace;
  if (row_.workspace_bytes > 0) {
    call_.workspace_bytes = std::min(block_sizes().workspace_bytes, row_.workspace_bytes);
    workspace = make_block(call_.workspace_bytes, device_);
    fill_new(workspace);
    call_.workspace = workspace.dl().data;
  }
  check(moejit_plan_call(ready_.plan, name, &call_));
  run_simulated_ranks(ready_, row_.is_of_all_ranks);
}

}  // namespace moejit::torch
