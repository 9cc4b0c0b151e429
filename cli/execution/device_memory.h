// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

#include <utility>

namespace moejit::cli {

// Owns memory of a device, which must live longer.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_), address_(std::exchange(other.address_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~DeviceMemory() {
    if (address_ != nullptr) device_->release(address_);
  }

  static Result<DeviceMemory> allocate(runtime::Device& device, int64_t bytes) {
    DeviceMemory memory;
    memory.device_ = &device;
    MOEJIT_TRY_ASSIGN(memory.address_, device.allocate(bytes));
    return memory;
  }

  void* address() const { return address_; }

 private:
  runtime::Device* device_ = nullptr;
  void* address_ = nullptr;
};

}  // namespace moejit::cli
