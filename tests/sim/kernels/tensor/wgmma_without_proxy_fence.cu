// SPDX-License-Identifier: Apache-2.0
// An operand that ordinary stores wrote.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  for (int32_t i = 0; i < 4; ++i) {
    store(own_chunk(kA) + 128 * i, Bytes16{});
    store(own_chunk(kB) + 128 * i, Bytes16{});
  }
#if !BROKEN
  fence_proxy_async();
#endif
  sync_cta();
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));
}
