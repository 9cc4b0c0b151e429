// SPDX-License-Identifier: Apache-2.0
// The barrier of each CTA waits for an arrival of the other one.
MOEJIT_CLUSTER_KERNEL(2, 128, 1, test_kernel, Params) {
  make_barriers();
  sync_cluster();
  const int32_t other = 1 - cta_index() % 2;
  if (thread_index() == 0 && (!BROKEN || other == 0)) arrive_in_cluster(full_barrier(), other);
  wait(full_barrier(), 0);  // FAULT
  store(own_output(params), 0.0f);
  sync_cluster();           // FAULT
}
