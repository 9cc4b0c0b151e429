// SPDX-License-Identifier: Apache-2.0
// The wait leaves the last group in flight.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<64> first;
  WgmmaSum<64> second;
  wgmma_fence(first, second);
  wgmma_e4m3(first, a_operand(), b_operand(), false);
  wgmma_commit();
  wgmma_e4m3(second, a_operand(), b_operand(), false);
  wgmma_commit();
  wgmma_wait<1>(first, second);
  const float value = BROKEN ? second(0) : first(0);  // FAULT
  wgmma_wait<0>(second);
  store(own_output(params), value + second(1));
}
