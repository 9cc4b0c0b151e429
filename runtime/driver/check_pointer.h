// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/driver/driver_api.h"

#include <cstdint>

namespace moejit::runtime {

// Checks that the region lies within one allocation, as far as the driver knows. The allocation may
// be of the GPU `ordinal`, managed memory or pinned host memory. This queries the driver, so it is
// for debugging. Error kTensorMismatch names the tensor.
Result<void> check_pointer(const DriverApi& api, int32_t ordinal, const MemoryRegion& region);

}  // namespace moejit::runtime
