// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/driver/driver_api.h"

#include <cstdint>

namespace moejit::runtime {

// Whether the region lies within one allocation of the GPU `ordinal` (or managed memory, or pinned
// memory of the host), as far as the driver knows. A query of the driver: for debugging. Error
// kTensorMismatch names the tensor.
Result<void> check_pointer(const DriverApi& api, int32_t ordinal, const MemoryRegion& region);

}  // namespace moejit::runtime
