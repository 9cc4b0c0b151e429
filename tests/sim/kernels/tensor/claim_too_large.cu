// SPDX-License-Identifier: Apache-2.0
// 384 threads begin with 168 registers each: 128 * 40 + 256 * 232 is what there is.
MOEJIT_KERNEL(384, 1, test_kernel, Params) {
  if (warpgroup_index() == 2) {
    release_registers<BROKEN ? 48 : 40>();
  } else {
    claim_registers<232>();  // FAULT
  }
}
