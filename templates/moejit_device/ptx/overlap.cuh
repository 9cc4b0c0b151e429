// SPDX-License-Identifier: Apache-2.0
#pragma once

// Launches that overlap ("programmatic dependent launch"). Such a kernel may begin while the kernel
// before it on the stream still runs, and waits for it here. Three rules make that safe:
//
//   - Until a thread has called await_kernel_before(), it touches nothing that the kernel before
//     writes, and writes nothing that the kernel before reads.
//   - A thread calls start_kernel_behind() only after await_kernel_before().
//   - Every CTA waits before it ends, also one without work.
//
// By the second rule a kernel begins when all CTAs of the kernel before have waited, so the kernel
// two before is complete by then: what it wrote may be read at once, past L1 (load_past_l1()). By
// the third rule a kernel that is complete has only complete kernels before it. So a launch that
// does not overlap finds everything done. The first kernel of a call is such a launch.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

// Waits until the kernel before is complete and what it wrote is visible. Returns at once if this
// launch did not overlap.
MOEJIT_DEVICE void await_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the kernel behind begin, once all CTAs have called or ended. Orders no memory.
MOEJIT_DEVICE void start_kernel_behind() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Words that a kernel wrote which is complete, though this one may not have waited yet: L1 may hold
// what was there before.
MOEJIT_DEVICE int32_t load_past_l1(GlobalPtr<const int32_t> pointer) {
  int32_t value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(pointer.address));
  return value;
}
MOEJIT_DEVICE int64_t load_past_l1(GlobalPtr<const int64_t> pointer) {
  int64_t value;
  asm volatile("ld.relaxed.gpu.global.s64 %0, [%1];" : "=l"(value) : "l"(pointer.address));
  return value;
}

}  // namespace moejit::device::ptx
