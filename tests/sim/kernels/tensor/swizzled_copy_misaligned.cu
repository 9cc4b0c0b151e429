// SPDX-License-Identifier: Apache-2.0
// The swizzle follows the address: a box begins where its pattern does.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), kTileBytes);
    load_tensor_2d(shared<Bytes16>(kB + (BROKEN ? 512 : 1024)), params.a_map,  // FAULT
                   full_barrier(), 0, 0);
  }
  wait(full_barrier(), 0);
}
