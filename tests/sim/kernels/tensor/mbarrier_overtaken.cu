// SPDX-License-Identifier: Apache-2.0
// Two phases end before a thread has seen the first: by the parity it is not over.
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) arrive(full_barrier());
#if !BROKEN
  if (warp_index() == 1) wait(full_barrier(), 0);
  sync_cta();
#endif
  if (thread_index() == 0) arrive(full_barrier());
  if (warp_index() == 1) wait(full_barrier(), BROKEN ? 0 : 1);  // FAULT
}
