// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  if (!BROKEN || warp_index() != 1) {
    wgmma_fence(sum);
    wgmma_e4m3(sum, a_operand(), b_operand(), false);  // FAULT
    wgmma_commit();
    wgmma_wait<0>(sum);
  }
  sync_cta();  // FAULT
}
