// SPDX-License-Identifier: Apache-2.0
// Three warps wait for the operands, the fourth does not.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  if (!BROKEN || warp_index() != 2) wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  wgmma_fence(sum);
  wgmma_e4m3(sum, a_operand(), b_operand(), false);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));
}
