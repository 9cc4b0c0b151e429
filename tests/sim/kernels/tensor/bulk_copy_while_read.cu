// SPDX-License-Identifier: Apache-2.0
// Factors that a copy brought are read with ordinary loads: all lanes have to be done before one of
// them gives the stage back.
MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  make_barriers();
  if (warp_index() == 1) {
    if (lane_index() != 0) return;
    for (uint32_t round = 0; round < 2; ++round) {
      wait(empty_barrier(), (round & 1) ^ 1);
      arrive_expecting(full_barrier(), 512);
      load_bulk(shared<Bytes16>(kA), as<const Bytes16>(global(params.a)), 512,  // FAULT
                full_barrier());
    }
    return;
  }
  uint32_t total = 0;
  for (uint32_t round = 0; round < 2; ++round) {
    wait(full_barrier(), round & 1);
    total += load(own_chunk(kA)).word[0];
#if !BROKEN
    sync_warp();
#endif
    if (lane_index() == 0) arrive(empty_barrier());
  }
  store(own_output(params), static_cast<float>(total));
}
