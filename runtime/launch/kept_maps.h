// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"
#include "runtime/launch/turn.h"

#include <cstdint>
#include <vector>

namespace moejit::runtime {

// A tensor map with what it was made of besides the plan. It says where elements are, and nothing
// about the memory there, so it stays right for whatever tensor has the address.
struct KeptMap {
  const void* address = nullptr;  // null: nothing is kept
  int64_t size = 0;               // of the dimension that changes from call to call; 0 without it
  device::TensorMap map{};
};

// The tensor maps of a kernel's last launch: the next one mostly has the same, and need not ask the
// driver for them.
struct KeptMaps {
  TakenFlag is_taken = false;
  std::vector<KeptMap> maps;  // in the order of the kernel's
};

}  // namespace moejit::runtime
