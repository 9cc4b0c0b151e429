// SPDX-License-Identifier: Apache-2.0
// One slot for four rounds: it is refilled when the math warps say that they are done with it.
MOEJIT_KERNEL(256, 1, test_kernel, Params) {
  make_barriers();
  if (warpgroup_index() == 1) {
    if (thread_index() != 128) return;
    for (uint32_t round = 0; round < 4; ++round) {
#if !BROKEN
      wait(empty_barrier(), (round & 1) ^ 1);
#endif
      arrive_expecting(full_barrier(), 2 * kTileBytes);
      load_tensor_2d(shared<Bytes16>(kA), params.a_map, full_barrier(), 0, 0);  // FAULT
      load_tensor_2d(shared<Bytes16>(kB), params.b_map, full_barrier(), 0, 0);
      if (BROKEN) wait(full_barrier(), round & 1);
    }
    return;
  }
  float total = 0.0f;
  for (uint32_t round = 0; round < 4; ++round) {
    WgmmaSum<64> sum;
    wait(full_barrier(), round & 1);
    wgmma_fence(sum);
    wgmma_e4m3(sum, a_operand(), b_operand(), false);  // FAULT
    wgmma_commit();
    wgmma_wait<0>(sum);
    if (thread_index() == 0) arrive(empty_barrier());
    total += sum(0);
  }
  store(own_output(params), total);
}
