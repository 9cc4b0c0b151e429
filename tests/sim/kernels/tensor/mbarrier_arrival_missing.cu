// SPDX-License-Identifier: Apache-2.0
// Nobody arrives for a phase that is waited for.
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  make_barriers();
  if (!BROKEN && thread_index() == 0) arrive(empty_barrier());
  if (warp_index() == 1) wait(empty_barrier(), 0);  // FAULT
}
