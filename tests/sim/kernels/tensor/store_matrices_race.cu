// SPDX-License-Identifier: Apache-2.0
// What lanes of a warp hold is in the row that another lane gives the address of.
MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  MatrixFragments fragments{};
  store_matrices(shared<Bytes16>(kD) + lane_index(), fragments);
#if !BROKEN
  sync_warp();
#endif
  const Bytes16 row = load(shared<Bytes16>(kD) + lane_index());  // FAULT
  store(own_output(params), static_cast<float>(row.word[0]));
}
