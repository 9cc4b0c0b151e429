// SPDX-License-Identifier: Apache-2.0
// The descriptor of an MN-major operand says where the next 64 elements of M or N are.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  wait(full_barrier(), 0);
  WgmmaSum<128> sum;
  const auto b = BROKEN ? b_operand() : mn_major_descriptor(shared<Bytes16>(kB));
  wgmma_fence(sum);
  wgmma_steps_bf16<Major::kK, Major::kMn>(sum, a_operand(), b, false);  // FAULT
  wgmma_commit();
  wgmma_wait<0>(sum);
  store(own_output(params), sum(0));
}
