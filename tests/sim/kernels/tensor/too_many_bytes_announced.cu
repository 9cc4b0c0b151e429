// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes + (BROKEN ? 128 : 0));
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);
  }
  wait(full_barrier(), 0);  // FAULT
}
