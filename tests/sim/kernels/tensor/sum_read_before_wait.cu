// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);
  wgmma_commit();
#if BROKEN
  const float early = sum(5);  // FAULT
  wgmma_wait<0>(sum);
#else
  wgmma_wait<0>(sum);
  const float early = sum(5);
#endif
  store(own_output(params), early);
}
