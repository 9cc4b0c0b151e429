// SPDX-License-Identifier: Apache-2.0
// The hardware reads maps where the launch put them.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    const TensorMap copied = params.a_map;
    arrive_expecting(full_barrier(), kTileBytes);
    load_tensor_2d(shared<Bytes16>(kA), BROKEN ? copied : params.a_map, full_barrier(),  // FAULT
                   0, 0);
  }
  wait(full_barrier(), 0);
}
