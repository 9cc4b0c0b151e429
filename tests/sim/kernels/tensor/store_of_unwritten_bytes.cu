// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const int32_t chunks = BROKEN ? 3 : 4;
  for (int32_t i = 0; i < chunks; ++i) store(own_chunk(kD) + 128 * i, Bytes16{{1, 2, 3, 4}});
  fence_proxy_async();
  sync_cta();
  if (thread_index() == 0) {
    store_tensor_2d(params.d_map, shared<float>(kD), 0, 64 * cta_index());  // FAULT
    commit_tensor_stores();
    wait_tensor_stores_read<0>();
  }
}
