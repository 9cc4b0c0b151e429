// SPDX-License-Identifier: Apache-2.0
// A slot is read before its copy is known to be complete.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) load_operands(params);
  sync_cta();  // the copies are started
#if BROKEN
  if (thread_index() == 0) wait(full_barrier(), 0);
#else
  wait(full_barrier(), 0);
#endif
  const Bytes16 value = load(own_chunk(kA));  // FAULT
  store(own_output(params), static_cast<float>(value.word[0]));
  wait(full_barrier(), 0);
}
