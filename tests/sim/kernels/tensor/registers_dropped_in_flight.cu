// SPDX-License-Identifier: Apache-2.0
// The registers end before the wait.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> sum;
#if !BROKEN
  RowFragments a;
  for (int32_t k = 0; k < 4; ++k)
    for (int32_t i = 0; i < 4; ++i) a.word[k][i] = 0x38383838u;
  wgmma_fence(sum, a);
  wgmma_rows_bf16(sum, a, b_operand(), false);
  wgmma_commit();
  wgmma_wait<0>(sum, a);
#else
  {
    RowFragments a;
    for (int32_t k = 0; k < 4; ++k)
      for (int32_t i = 0; i < 4; ++i) a.word[k][i] = 0x38383838u;
    wgmma_fence(sum, a);
    wgmma_rows_bf16(sum, a, b_operand(), false);  // FAULT
    wgmma_commit();
  }
  wgmma_wait<0>(sum);
#endif
  store(own_output(params), sum(0));
}
