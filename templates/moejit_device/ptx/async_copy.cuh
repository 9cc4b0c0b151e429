// SPDX-License-Identifier: Apache-2.0
#pragma once

// cp.async: copies from global to shared memory that complete later, in groups of a thread.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

// Starts a copy of 16 bytes; where `valid` is false, 16 zero bytes are written and nothing is
// read. After wait_async_copies() the data may be used by this thread, and behind a barrier by
// others.
MOEJIT_DEVICE void copy_async_16(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                                 bool valid) {
  const int32_t source_bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination.address),
               "l"(source.address), "r"(source_bytes)
               : "memory");
}

// As copy_async_16(), of bytes that nothing may have written, as long as nobody uses them.
MOEJIT_DEVICE void copy_operand_async_16(SharedPtr<Bytes16> destination,
                                         GlobalPtr<const Bytes16> source, bool valid) {
  copy_async_16(destination, source, valid);
}

// Copies 4 bytes in the same way.
MOEJIT_DEVICE void copy_async_4(SharedPtr<float> destination, GlobalPtr<const float> source,
                                bool valid) {
  const int32_t source_bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination.address),
               "l"(source.address), "r"(source_bytes)
               : "memory");
}

// Closes the group of copies that this thread started since the last call (may be empty).
MOEJIT_DEVICE void commit_async_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `kPending` groups of this thread are complete.
template <int32_t kPending>
MOEJIT_DEVICE void wait_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace moejit::device::ptx
