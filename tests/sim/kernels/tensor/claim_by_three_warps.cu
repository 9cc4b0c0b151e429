// SPDX-License-Identifier: Apache-2.0
MOEJIT_KERNEL(384, 1, test_kernel, Params) {
  if (warpgroup_index() == 2) {
    release_registers<40>();
  } else if (!BROKEN || warp_index() != 5) {
    claim_registers<232>();  // FAULT
  }
}
