// SPDX-License-Identifier: Apache-2.0
// A copy counts on the barrier of the operands, and the phase has to wait for it too.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);  // FAULT
    load_bulk(shared<Bytes16>(kB), as<const Bytes16>(global(params.b)), 512,  // FAULT
              full_barrier());
    arrive_expecting(full_barrier(), kTileBytes + (BROKEN ? 0 : 512));
  }
  wait(full_barrier(), 0);  // FAULT
}
