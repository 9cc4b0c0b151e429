// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  WgmmaSum<64> other;
  wgmma_fence(sum, other);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);
  wgmma_commit();
  wgmma_wait<0>(sum, other);
  store(own_output(params), BROKEN ? other(0) : sum(0));  // FAULT
}
