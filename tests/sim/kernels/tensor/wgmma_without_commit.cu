// SPDX-License-Identifier: Apache-2.0
// The wait covers groups; what is in none stays in flight.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);
#if !BROKEN
  wgmma_commit();
#endif
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));  // FAULT
}
