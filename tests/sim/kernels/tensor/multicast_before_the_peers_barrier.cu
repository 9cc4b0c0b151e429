// SPDX-License-Identifier: Apache-2.0
// The barriers of the other CTA have to be there before its memory is copied to.
MOEJIT_CLUSTER_KERNEL(2, 128, 1, test_kernel, Params) {
  make_barriers();
#if !BROKEN
  sync_cluster();
#endif
  if (thread_index() == 0) {
    arrive_expecting(full_barrier(), 2 * kTileBytes);
    const uint32_t place = cta_index() % 2 == 1 ? kB : kA;
    multicast_tensor_2d(shared<Bytes16>(place), params.a_map, full_barrier(), 0, 0, 3);  // FAULT
  }
  wait(full_barrier(), 0);
  store(own_output(params), static_cast<float>(load(own_chunk(kA)).word[0]));
  sync_cluster();
}
