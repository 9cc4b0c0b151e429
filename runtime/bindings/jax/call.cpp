// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/jax/call.h"

#include "runtime/bindings/graph/failure.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace moejit::jax {
namespace {

using graph::CallArgument;
using graph::PlannedTensor;
using xla::ffi::AnyBuffer;
using Kind = CallArgument::Kind;

// Codes of float8 types, as DLPack 1.1 counts them; older headers lack them.
constexpr uint8_t kE4m3 = 10, kE5m2 = 12, kE8m0 = 14;

DLDataType dtype_of(xla::ffi::DataType dtype) {
  using enum xla::ffi::DataType;
  switch (dtype) {
    case BF16: return {kDLBfloat, 16, 1};
    case F32: return {kDLFloat, 32, 1};
    case S32: return {kDLInt, 32, 1};
    case S64: return {kDLInt, 64, 1};
    case U32: return {kDLUInt, 32, 1};
    case U8: return {kDLUInt, 8, 1};
    case F8E4M3FN: return {kE4m3, 8, 1};
    case F8E5M2: return {kE5m2, 8, 1};
    case F8E8M0FNU: return {kE8m0, 8, 1};
    default: return {kDLOpaqueHandle, 0, 1};  // the library refuses it, and names the tensor
  }
}

// Returns whether a tensor [..., 2] of 32-bit words has the halves of 64-bit integers: JAX has such
// integers only if it is told to.
bool is_halves(const DLTensor& tensor, const PlannedTensor& planned) {
  return planned.dtype.code == kDLInt && planned.dtype.bits == 64 && tensor.dtype.code == kDLUInt &&
         tensor.dtype.bits == 32 && tensor.ndim > 0 && tensor.shape[tensor.ndim - 1] == 2;
}

}  // namespace

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

Call::Call(const graph::ReadyPlan& ready, const graph::CallRow& row, void* stream)
    : ready_(ready), row_(row) {
  call_.struct_size = sizeof call_;
  call_.stream = stream;
  tensors_.reserve(ready.rows.tensors.size());
  names_.reserve(ready.rows.tensors.size());
}

const CallArgument* Call::find(std::string_view name) const {
  for (const std::vector<CallArgument>* list : {&row_.reads, &row_.writes})
    if (const auto found = std::ranges::find(*list, name, &CallArgument::name);
        found != list->end())
      return &*found;
  return nullptr;
}

void Call::add(std::string_view name, const AnyBuffer& buffer) {
  if (name == "workspace") {
    call_.workspace = buffer.untyped_data();
    call_.workspace_bytes = static_cast<int64_t>(buffer.size_bytes());
    return;
  }
  const CallArgument* const argument = find(name);
  if (argument == nullptr)
    graph::fail(MOEJIT_ERROR_INVALID_VALUE, "the program gives " + std::string(name) +
                                                " to the call " + row_.name + ", which takes " +
                                                names_of(row_.reads) + " and writes " +
                                                names_of(row_.writes));
  if (argument->kind != Kind::kTensor) return add_block(*argument, buffer);
  const auto dims = buffer.dimensions();
  DLTensor tensor{};
  tensor.data = buffer.untyped_data();
  tensor.dtype = dtype_of(buffer.element_type());
  tensor.ndim = static_cast<int32_t>(dims.size());
  tensor.shape = const_cast<int64_t*>(dims.begin());
  if (is_halves(tensor, *argument->planned)) {
    tensor.dtype = argument->planned->dtype;
    --tensor.ndim;
  }
  add_tensor(argument->name.c_str(), tensor);
}

void Call::add_result(std::string_view name, const AnyBuffer& buffer, bool is_given) {
  add(name, buffer);
  const CallArgument* const argument = find(name);
  if (argument == nullptr || is_given) return;
  const auto bytes = static_cast<int64_t>(buffer.size_bytes());
  // On the CPU blocks begin as zeros: bytes that no kernel writes are the same from call to call.
  if (argument->kind == Kind::kTensor ? argument->is_read : ready_.place.device_type == kDLCPU)
    clear(buffer, 0, bytes);
  else if (argument->digest != nullptr)  // so the call quantizes, whatever the weights are
    clear(buffer, argument->digest->quantized_offset, argument->digest->bytes);
}

void Call::add_block(const CallArgument& argument, const AnyBuffer& buffer) {
  const auto bytes = static_cast<int64_t>(buffer.size_bytes());
  switch (argument.kind) {
    case Kind::kSaved:
      call_.saved = buffer.untyped_data();
      call_.saved_bytes = bytes;
      return;
    case Kind::kDeferred:
      call_.deferred = buffer.untyped_data();
      call_.deferred_bytes = bytes;
      return;
    default: return add_quantized(argument, buffer);
  }
}

void Call::add_quantized(const CallArgument& argument, const AnyBuffer& buffer) {
  if (static_cast<int64_t>(buffer.size_bytes()) != argument.block->bytes)
    graph::fail(MOEJIT_ERROR_TENSOR_MISMATCH,
                "tensor " + argument.name + ": it has " + std::to_string(buffer.size_bytes()) +
                    " bytes, wanted " + std::to_string(argument.block->bytes),
                "give what moejit.jax.quantize() returned for the same plan");
  for (const PlannedTensor* const slice : argument.slices) {
    DLTensor tensor{};
    tensor.data = buffer.untyped_data();
    tensor.byte_offset = static_cast<uint64_t>(slice->quantized_offset);
    tensor.dtype = slice->dtype;
    tensor.ndim = static_cast<int32_t>(slice->shape.size());
    tensor.shape = const_cast<int64_t*>(slice->shape.data());
    add_tensor(slice->name.c_str(), tensor);
  }
}

void Call::add_tensor(const char* name, const DLTensor& tensor) {
  tensors_.push_back(tensor);
  tensors_.back().device = ready_.place;
  names_.push_back(name);
}

void Call::clear(const AnyBuffer& buffer, int64_t first, int64_t bytes) {
  std::byte* const data = static_cast<std::byte*>(buffer.untyped_data()) + first;
  if (bytes == 0) return;
  if (ready_.place.device_type == kDLCPU)
    std::memset(data, 0, static_cast<std::size_t>(bytes));
  else
    graph::check(moejit_device_fill(ready_.device, data, 0, bytes, call_.stream));
}

void Call::run() {
  std::vector<moejit_tensor> given;
  given.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) given.push_back({names_[i], &tensors_[i]});
  call_.tensors = given.data();
  call_.tensor_count = given.size();
  graph::check(moejit_plan_call(ready_.plan, row_.name.c_str(), &call_));
}

}  // namespace moejit::jax
