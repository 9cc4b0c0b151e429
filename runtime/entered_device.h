// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"

namespace moejit::runtime {

// Makes a device current for a scope. Launches in it then need not make it current one by one, and
// libraries that take the GPU of the thread's context find it.
class EnteredDevice {
 public:
  explicit EnteredDevice(Device& device) : device_(device), is_entered_(device.enter()) {}
  ~EnteredDevice() {
    if (is_entered_ && *is_entered_) device_.leave();
  }
  EnteredDevice(const EnteredDevice&) = delete;
  EnteredDevice& operator=(const EnteredDevice&) = delete;

  Result<void> check() const {
    if (!is_entered_) return tl::make_unexpected(is_entered_.error());
    return {};
  }

 private:
  Device& device_;
  Result<bool> is_entered_;
};

}  // namespace moejit::runtime
