// SPDX-License-Identifier: Apache-2.0
// The compiler may give such registers to something else before the wait.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
  RowFragments a;
  for (int32_t k = 0; k < 4; ++k)
    for (int32_t i = 0; i < 4; ++i) a.word[k][i] = 0x38383838u;
  wgmma_fence(sum, a);
  wgmma_rows_e4m3(sum, a, b_operand(), false);  // FAULT
  wgmma_commit();
#if BROKEN
  wgmma_wait<0>(sum);
#else
  wgmma_wait<0>(sum, a);
#endif
  store(own_output(params), sum(0));
}
