// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  if (thread_index() == 0) {
    init_mbarrier(full_barrier(), 2);
    fence_mbarrier_init();
  }
#if BROKEN
  sync_warp();
#else
  sync_cta();
#endif
  if (lane_index() == 0) arrive(full_barrier());  // FAULT
}
