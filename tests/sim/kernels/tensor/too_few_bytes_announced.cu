// SPDX-License-Identifier: Apache-2.0
// The phase ends before its copies do.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);
    load_tensor_2d(shared<Bytes16>(kB), params.b_map, full_barrier(), 0, 0);  // FAULT
    arrive_expecting(full_barrier(), (BROKEN ? 1 : 2) * kTileBytes);
  }
  wait(full_barrier(), 0);  // FAULT
}
