// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  if (thread_index() == 0) {
    init_mbarrier(full_barrier(), 1);
#if !BROKEN
    fence_mbarrier_init();
#endif
  }
  sync_cta();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes);
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);  // FAULT
  }
  wait(full_barrier(), 0);
}
