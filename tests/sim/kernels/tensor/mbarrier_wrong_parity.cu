// SPDX-License-Identifier: Apache-2.0
// The second round waits for the parity of a third.
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  make_barriers();
  for (uint32_t round = 0; round < 2; ++round) {
    if (thread_index() == 0) arrive(full_barrier());
    wait(full_barrier(), BROKEN ? 1 : round & 1);  // FAULT
    sync_cta();
  }
}
