// SPDX-License-Identifier: Apache-2.0
// The next operand is made in registers that a WGMMA still reads. One thread is enough.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  RowFragments a;
  for (int32_t k = 0; k < 4; ++k)
    for (int32_t i = 0; i < 4; ++i) a.word[k][i] = 0x38383838u;
  wgmma_fence(sum, a);
  wgmma_rows_e4m3(sum, a, b_operand(), false);
  wgmma_commit();
  if (BROKEN && thread_index() == 77) a.word[2][1] = 0x40404040u;
  wgmma_wait<0>(sum, a);  // FAULT
  store(own_output(params), sum(0));
}
