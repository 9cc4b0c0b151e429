// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "moejit_device/core/tensor_map.cuh"
#include "runtime/driver/driver_api.h"

namespace moejit::runtime {

// Returns the driver's encoding of a tensor and a box of it. Errors: kInternal (the hardware does
// not take the box); kDriver.
Result<device::TensorMap> encode_cuda_tensor_map(const DriverApi& api,
                                                 const compiler::TensorBox& box,
                                                 const void* address);

}  // namespace moejit::runtime
