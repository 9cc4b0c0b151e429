// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(384, 1, test_kernel, Params) {
  if (warpgroup_index() == 2) release_registers<BROKEN ? 176 : 40>();  // FAULT
}
