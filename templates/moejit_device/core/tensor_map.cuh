// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// A tensor and a box of it, encoded by the device that it is for (runtime/device.h,
// encode_tensor_map()). Opaque: a CUtensorMap on a GPU. Lives in the parameter record of a kernel.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

}  // namespace moejit::device
