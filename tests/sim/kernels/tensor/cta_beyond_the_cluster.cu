// SPDX-License-Identifier: Apache-2.0
// A cluster of two has the CTAs 0 and 1.
MOEJIT_CLUSTER_KERNEL(2, 128, 1, test_kernel, Params) {
  make_barriers();
  sync_cluster();
  if (thread_index() == 0) {
    arrive_in_cluster(full_barrier(), BROKEN ? cta_index() % 2 + 1 : cta_index() % 2);  // FAULT
  }
  wait(full_barrier(), 0);
  store(own_output(params), 0.0f);
  sync_cluster();
}
