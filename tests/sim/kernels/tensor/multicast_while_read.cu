// SPDX-License-Identifier: Apache-2.0
// Each CTA copies one operand into both: it may refill its slot once both CTAs have read it.
MOEJIT_DEVICE void copy_own_part(const Params& params) {
  arrive_expecting(full_barrier(), 2 * kTileBytes);
  const auto place = shared<Bytes16>(cta_index() % 2 == 1 ? kB : kA);
  multicast_tensor_2d(place, params.a_map, full_barrier(), 0, 0, 3);  // FAULT
}
MOEJIT_CLUSTER_KERNEL(2, 128, 1, test_kernel, Params) {
  make_barriers();
  sync_cluster();
  uint32_t total = 0;
  for (uint32_t round = 0; round < 2; ++round) {
    if (thread_index() == 0) copy_own_part(params);
    wait(full_barrier(), round);
    total += load(own_chunk(kA)).word[0] + load(own_chunk(kB)).word[0];
#if BROKEN
    sync_cta();
#else
    sync_cluster();
#endif
  }
  store(own_output(params), static_cast<float>(total));
  sync_cluster();
}
