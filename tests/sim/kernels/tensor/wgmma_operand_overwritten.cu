// SPDX-License-Identifier: Apache-2.0
// An ordinary store into an operand in flight.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);
  wgmma_commit();
#if !BROKEN
  wgmma_wait<0>(sum);
  sync_cta();
#endif
  for (int32_t i = 0; i < 4; ++i) store(own_chunk(kA) + 128 * i, Bytes16{});  // FAULT
#if BROKEN
  wgmma_wait<0>(sum);
#endif
  store(own_output(params), sum(0));
}
