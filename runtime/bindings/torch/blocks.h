// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/tensor.h"

#include <cstdint>
#include <optional>

struct moejit_device;

namespace moejit::torch {

// Returns the current stream of torch on the device; NULL on the CPU.
void* current_stream(DLDevice device);

// Returns a block of bytes from torch's allocator, uninitialized.
Tensor make_block(int64_t bytes, DLDevice device);

// Returns the value that all bytes of what calls make on this device have before kernels write
// there; nothing: they are what memory had. It is 0 on the CPU and nothing on GPUs, until
// fill_blocks() sets a value for both; a negative one ends that. With a value, bytes that no kernel
// writes are the same from call to call.
std::optional<std::uint8_t> fill_of(DLDevice device);
void fill_blocks(int32_t value);

// Sets so many bytes of a tensor on the device to a value, from a byte on, in order with the
// current stream.
void fill(const Tensor& tensor, moejit_device* device, int64_t first, int64_t bytes,
          std::uint8_t value);

}  // namespace moejit::torch
