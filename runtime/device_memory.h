// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::runtime {

// Owns memory of a device. The device must live longer.
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

  static Result<DeviceMemory> allocate(Device& device, int64_t bytes) {
    DeviceMemory memory;
    memory.device_ = &device;
    MOEJIT_TRY_ASSIGN(memory.address_, device.allocate(bytes));
    return memory;
  }

  void* address() const { return address_; }

 private:
  Device* device_ = nullptr;
  void* address_ = nullptr;
};

// Memory of a device with a name for the simulator's reports.
struct NamedMemory {
  std::string_view name;
  int64_t bytes = 0;
  DeviceMemory memory;

  void* address() const { return memory.address(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory.address());
  }
  MemoryRegion region(bool is_written = false) const {
    return {name, memory.address(), bytes, is_written};
  }
};

inline Result<NamedMemory> allocate_named(Device& device, std::string_view name, int64_t bytes) {
  NamedMemory named{.name = name, .bytes = bytes, .memory = {}};
  MOEJIT_TRY_ASSIGN(named.memory, DeviceMemory::allocate(device, bytes));
  return named;
}

// Allocates as many bytes as the values have, and copies them there.
template <typename T>
Result<NamedMemory> upload_named(Device& device, std::string_view name,
                                 const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  MOEJIT_TRY_ASSIGN(NamedMemory memory, allocate_named(device, name, bytes));
  MOEJIT_TRY(device.copy_to_device(memory.address(), values.data(), bytes));
  return memory;
}

}  // namespace moejit::runtime
