// SPDX-License-Identifier: Apache-2.0
// The writers fence, not the thread that starts the store.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  for (int32_t i = 0; i < 4; ++i) store(own_chunk(kD) + 128 * i, Bytes16{{1, 2, 3, 4}});
#if !BROKEN
  fence_proxy_async();
#endif
  sync_cta();
  if (thread_index() == 0) {
    fence_proxy_async();
    store_tensor_2d(params.d_map, shared<float>(kD), 0, 64 * cta_index());  // FAULT
    commit_tensor_stores();
    wait_tensor_stores<0>();
  }
}
