// SPDX-License-Identifier: Apache-2.0
// Nobody waits for a copy, which may land in the next CTA's shared memory.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes);
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);  // FAULT
#if !BROKEN
    wait(full_barrier(), 0);
#endif
  }
}
