// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/device_tensors.h"

#include <algorithm>

namespace moejit::trial {

using runtime::element_count;
using runtime::HostTensor;

using runtime::DeviceMemory;

namespace {

constexpr std::byte kUnwritten{0xff};  // makes a NaN in every float format

}  // namespace

Result<void> DeviceTensors::add(const std::string& name, compiler::DType dtype,
                                std::vector<int64_t> shape, const HostTensor* content) {
  const int64_t bytes = element_count(shape) * compiler::size_bytes(dtype);
  MOEJIT_TRY_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device_, bytes));
  if (content == nullptr) {
    MOEJIT_TRY(device_.fill(memory.address(), kUnwritten, bytes, nullptr));
  } else if (!content->bytes.empty()) {
    const int64_t piece = std::ssize(content->bytes);
    auto* const start = static_cast<std::byte*>(memory.address());
    for (int64_t done = 0; done < bytes; done += piece)
      MOEJIT_TRY(device_.copy_to_device(start + done, content->bytes.data(),
                                        std::min(piece, bytes - done)));
  }
  tensors_.emplace(name, Tensor{dtype, std::move(shape), std::move(memory)});
  return {};
}

void* DeviceTensors::address_of(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.memory.address();
}

runtime::TensorRef DeviceTensors::ref(std::string_view name) const {
  const auto found = tensors_.find(name);
  return {found->first, found->second.dtype, found->second.shape, found->second.memory.address()};
}

Result<HostTensor> DeviceTensors::read(std::string_view name) const {
  const Tensor& tensor = tensors_.find(name)->second;
  HostTensor host{tensor.dtype, tensor.shape, {}};
  const int64_t bytes = element_count(host.shape) * compiler::size_bytes(host.dtype);
  host.bytes.resize(static_cast<size_t>(bytes));
  if (bytes == 0) return host;
  MOEJIT_TRY(device_.synchronize(nullptr));
  MOEJIT_TRY(device_.copy_to_host(host.bytes.data(), tensor.memory.address(), bytes));
  return host;
}

}  // namespace moejit::trial
