// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/blocks.h"

#include "runtime/bindings/torch/failure.h"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>

namespace moejit::torch {
namespace {

std::atomic<int32_t> value_of_blocks = -1;

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

Tensor make_block(int64_t bytes, DLDevice device) {
  return Tensor({&bytes, 1}, {kDLUInt, 8, 1}, device);
}

std::optional<std::uint8_t> fill_of(DLDevice device) {
  const int32_t value = value_of_blocks.load(std::memory_order_relaxed);
  if (value >= 0) return static_cast<std::uint8_t>(value);
  if (device.device_type == kDLCPU) return 0;
  return std::nullopt;
}

void fill_blocks(int32_t value) { value_of_blocks = value; }

void fill(const Tensor& tensor, moejit_device* device, int64_t first, int64_t bytes,
          std::uint8_t value) {
  if (bytes == 0) return;
  std::byte* const data = static_cast<std::byte*>(tensor.dl().data) + first;
  if (tensor.device().device_type == kDLCPU)
    std::memset(data, value, static_cast<std::size_t>(bytes));
  else
    check(moejit_device_fill(device, data, value, bytes, current_stream(tensor.device())));
}

}  // namespace moejit::torch
