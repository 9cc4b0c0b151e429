// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) arrive(BROKEN ? full_barrier() + 2 : full_barrier());  // FAULT
}
