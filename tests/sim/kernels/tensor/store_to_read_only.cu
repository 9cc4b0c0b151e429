// SPDX-License-Identifier: Apache-2.0
// A copy from a tensor that the kernel only reads, and one to it.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    load_operands(params);
    wait(full_barrier(), 0);
    if (BROKEN) {
      store_tensor_2d(params.a_map, shared<Bytes16>(kA), 0, 0);  // FAULT
    } else {
      store_tensor_2d(params.d_map, shared<Bytes16>(kA), 0, 64 * cta_index());
    }
    commit_tensor_stores();
    wait_tensor_stores_read<0>();
  }
}
