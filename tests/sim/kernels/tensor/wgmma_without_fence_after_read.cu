// SPDX-License-Identifier: Apache-2.0
// Sums were read between two WGMMAs.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);
  wgmma_commit();
  wgmma_wait<0>(sum);
  const float first = sum(0);
#if !BROKEN
  wgmma_fence(sum);
#endif
  wgmma_e4m3(sum, a_operand() + 32, b_operand() + 32, true);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), first + sum(0));
}
