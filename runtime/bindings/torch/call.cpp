// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/call.h"

#include "runtime/bindings/torch/failure.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace moejit::torch {
namespace {

constexpr DLDataType kBytes{kDLUInt, 8, 1};

void check_block(const Tensor& block, const char* name, int64_t bytes) {
  if (block.element_count() == bytes && block.dl().dtype.bits == 8) return;
  fail(MOEJIT_ERROR_TENSOR_MISMATCH,
       std::string("tensor ") + name + ": it has " + std::to_string(block.element_count()) +
           " elements of " + std::to_string(block.dl().dtype.bits) + " bits, wanted " +
           std::to_string(bytes) + " of 8",
       "give the block that the operator before it returned, for the same layer");
}

void fill_shape(const PlannedTensor& planned, int64_t tokens, std::array<int64_t, 4>& shape) {
  for (std::size_t i = 0; i < planned.shape.size(); ++i)
    shape[i] = planned.call_dims[i] == CallDim::kTokens ? tokens : planned.shape[i];
}

std::atomic<bool> fills_blocks_of_gpus = false;

}  // namespace

void* current_stream(DLDevice device) {
  if (device.device_type != kDLCUDA) return nullptr;
  using Get = Code (*)(int32_t, void**);
  // The library with this function exists only in builds of torch with CUDA.
  static const Get get = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Get>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  if (get == nullptr)
    fail(MOEJIT_ERROR_UNSUPPORTED, "libtorch_cuda.so does not tell torch's current stream",
         "use a build of torch 2.10 or newer with CUDA");
  void* stream = nullptr;
  check_torch(get(device.device_id, &stream), "aoti_torch_get_current_cuda_stream");
  return stream;
}

void fill_blocks_of_gpus(bool fills) { fills_blocks_of_gpus = fills; }

bool fills_blocks(DLDevice device) {
  return device.device_type == kDLCPU || fills_blocks_of_gpus.load(std::memory_order_relaxed);
}

void clear(const Tensor& tensor, moejit_device* device) {
  clear(tensor, device, 0, tensor.byte_count());
}

void clear(const Tensor& tensor, moejit_device* device, int64_t first, int64_t bytes) {
  if (bytes == 0) return;
  std::byte* const data = static_cast<std::byte*>(tensor.dl().data) + first;
  // torch would take longer. On the CPU it sets many bytes with OpenMP, which after fork() waits
  // forever for its threads.
  if (tensor.device().device_type == kDLCPU)
    std::memset(data, 0, static_cast<std::size_t>(bytes));
  else
    check(moejit_device_fill(device, data, 0, bytes, current_stream(tensor.device())));
}

Tensor make_block(int64_t bytes, DLDevice device) {
  Tensor block({&bytes, 1}, kBytes, device);
  if (fills_blocks(device) && bytes > 0) block.zero();
  return block;
}

Tensor make_output(const ReadyLayer& ready, const char* name, int64_t tokens, DLDevice device) {
  const PlannedTensor* planned = ready.find_output(name);
  const int64_t none = 0;
  if (planned == nullptr) return Tensor({&none, 1}, {kDLFloat, 32, 1}, device);
  std::array<int64_t, 4> shape{};
  fill_shape(*planned, tokens, shape);
  return Tensor({shape.data(), planned->shape.size()}, planned->dtype, device);
}

Tensor make_status(const ReadyLayer& ready, DLDevice device) {
  Tensor status = make_output(ready, "status", 0, device);
  // In a CUDA graph a kernel of torch's takes 2 us less than a fill between two kernels.
  if (device.device_type == kDLCUDA)
    status.zero();
  else
    clear(status, ready.device);
  return status;
}

Call::Call(const ReadyLayer& ready, DLDevice device, int64_t tokens)
    : ready_(ready), device_(device), tokens_(tokens), sizes_(ready.sizes(tokens)) {
  call_.struct_size = sizeof call_;
  call_.tensors = tensors_.data();
  call_.stream = current_stream(device);
}

void Call::add(const char* name, const Tensor& tensor) {
  tensors_[call_.tensor_count++] = {name, &tensor.dl()};
}

void Call::add_input(const char* name, const Tensor& tensor) {
  if (!tensor.needs_copy()) return add(name, tensor);
  Tensor& copy = copies_[copy_count_++];
  copy = tensor.copy();
  add(name, copy);
}

void Call::add_unless_empty(const char* name, const Tensor& tensor) {
  if (tensor.element_count() > 0) add(name, tensor);
}

void Call::add_input_unless_empty(const char* name, const Tensor& tensor) {
  if (tensor.element_count() > 0) add_input(name, tensor);
}

void Call::add_quantized(const char* name, const Tensor& block, const QuantizedBlock& planned,
                         uint32_t function) {
  if (std::ranges::none_of(planned.slices, [&](const QuantizedSlice& slice) {
        return (slice.used_by & function) != 0;
      }))
    return;
  check_block(block, name, planned.bytes);
  if (slice_count_ + planned.slices.size() > slices_.size())
    fail(MOEJIT_ERROR_INTERNAL, "the plan has more quantized weights than a call takes");
  for (const QuantizedSlice& slice : planned.slices) {
    if ((slice.used_by & function) == 0) continue;
    DLTensor& part = slices_[slice_count_++];
    part = block.dl();
    part.byte_offset = static_cast<uint64_t>(slice.offset);
    part.dtype = slice.tensor.dtype;
    part.ndim = static_cast<int32_t>(slice.tensor.shape.size());
    part.shape = const_cast<int64_t*>(slice.tensor.shape.data());
    part.strides = nullptr;
    tensors_[call_.tensor_count++] = {slice.tensor.name.c_str(), &part};
  }
}

void Call::allocate_workspace() {
  workspace_ = Tensor({&sizes_.workspace_bytes, 1}, kBytes, device_);
  call_.workspace = workspace_.dl().data;
  call_.workspace_bytes = sizes_.workspace_bytes;
}

void Call::set_saved(const Tensor& block) {
  check_block(block, "saved", sizes_.saved_bytes);
  call_.saved = block.dl().data;
  call_.saved_bytes = sizes_.saved_bytes;
}

void Call::set_deferred(const Tensor& block) {
  check_block(block, "deferred", sizes_.deferred_bytes);
  call_.deferred = block.dl().data;
  call_.deferred_bytes = sizes_.deferred_bytes;
}

void Call::allocate_deferred() {
  if (ready_.info.deferred_bytes == 0) return;
  deferred_ = Tensor({&sizes_.deferred_bytes, 1}, kBytes, device_);
  set_deferred(deferred_);
}

void Call::add_shape(const char* name, const PlannedTensor& like) {
  fill_shape(like, tokens_, shape_);
  shape_only_.device = device_;
  shape_only_.dtype = like.dtype;
  shape_only_.ndim = static_cast<int32_t>(like.shape.size());
  shape_only_.shape = shape_.data();
  tensors_[call_.tensor_count++] = {name, &shape_only_};
}

}  // namespace moejit::torch
