// SPDX-License-Identifier: Apache-2.0
// WGMMA reads with the swizzle that the copy did not make.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), 2 * kTileBytes);
    load_tensor_2d(shared<Bytes16>(kB), params.b_map, full_barrier(), 0, 0);
#if BROKEN
    load_tensor_2d(shared<Bytes16>(kA), params.plain_map, full_barrier(), 0, 0);
#else
    load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);
#endif
  }
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));
}
