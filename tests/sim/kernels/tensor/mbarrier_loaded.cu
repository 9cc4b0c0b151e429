// SPDX-License-Identifier: Apache-2.0
// Ordinary loads do not see what an mbarrier holds.
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) store(shared<uint32_t>(kFull + 16), 0u);
  if (thread_index() == 0) load(shared<uint32_t>(kFull + (BROKEN ? 4 : 16)));  // FAULT
}
