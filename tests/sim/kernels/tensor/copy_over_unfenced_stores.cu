// SPDX-License-Identifier: Apache-2.0
// An ordinary store may reach shared memory after the copy that replaces it.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  for (int32_t i = 0; i < 4; ++i) store(own_chunk(kA) + 128 * i, Bytes16{});
#if !BROKEN
  fence_proxy_async();
#endif
  sync_cta();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes);
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);  // FAULT
  }
  wait(full_barrier(), 0);
}
