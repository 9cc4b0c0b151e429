// SPDX-License-Identifier: Apache-2.0
// Staging memory is used again before the store has read it.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  for (int32_t i = 0; i < 4; ++i) store(own_chunk(kD) + 128 * i, Bytes16{{1, 2, 3, 4}});
  fence_proxy_async();
  sync_cta();
  if (thread_index() == 0) {
    store_tensor_2d(params.d_map, shared<float>(kD), 0, 64 * cta_index());
    commit_tensor_stores();
#if !BROKEN
    wait_tensor_stores_read<0>();
#endif
  }
  sync_cta();
  for (int32_t i = 0; i < 4; ++i) store(own_chunk(kD) + 128 * i, Bytes16{});  // FAULT
  if (BROKEN && thread_index() == 0) wait_tensor_stores_read<0>();
}
