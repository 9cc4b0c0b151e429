// SPDX-License-Identifier: Apache-2.0
// Bytes that follow each other are copied 16 at a time.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), 64);
    load_bulk(shared<Bytes16>(kA), as<const Bytes16>(global(params.a) + (BROKEN ? 1 : 4)),  // FAULT
              64, full_barrier());
  }
  wait(full_barrier(), 0);
}
