// SPDX-License-Identifier: Apache-2.0
// A CTA may not end while the other one still arrives at its barriers.
MOEJIT_CLUSTER_KERNEL(2, 128, 1, test_kernel, Params) {
  make_barriers();
  sync_cluster();
  const int32_t other = 1 - cta_index() % 2;
  store(own_output(params), 0.0f);
  sync_cta();
  if (thread_index() == 0) arrive_in_cluster(full_barrier(), other);  // FAULT
#if !BROKEN
  sync_cluster();
#endif
}
