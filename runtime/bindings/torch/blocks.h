// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/tensor.h"

#include <cstdint>

struct moejit_device;

namespace moejit::torch {

// Returns the current stream of torch on the device; NULL on the CPU.
void* current_stream(DLDevice device);

// Returns a block of bytes from torch's allocator, uninitialized.
Tensor make_block(int64_t bytes, DLDevice device);

// Whether what calls make on this device begins as zeros: on the CPU, and on GPUs after
// fill_blocks_of_gpus(true). So bytes that no kernel writes are the same from call to call.
bool fills_blocks(DLDevice device);
void fill_blocks_of_gpus(bool fills);

// Sets so many bytes of a tensor on the device to 0, from a byte on, in order with the current
// stream.
void clear(const Tensor& tensor, moejit_device* device, int64_t first, int64_t bytes);

}  // namespace moejit::torch
