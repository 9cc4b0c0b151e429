// SPDX-License-Identifier: Apache-2.0
// One warp multiplies other rows.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  const auto a = a_operand() + (BROKEN && warp_index() == 3 ? 32 : 0);
  wgmma_fence(sum);
  wgmma_e4m3(sum, a, b_operand(), false);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));
}
