// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) init_mbarrier(full_barrier() + (BROKEN ? 0 : 2), 1);  // FAULT
}
