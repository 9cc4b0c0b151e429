// SPDX-License-Identifier: Apache-2.0
// Two arrivals in a phase of one, whose bytes have not come.
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes);
    if (BROKEN) arrive(full_barrier());  // FAULT
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);
  }
  wait(full_barrier(), 0);
}
