// SPDX-License-Identifier: Apache-2.0
// load_matrices hands a row to other lanes than the one that stored it.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto rows = shared<Bytes16>(0);
  const auto word = static_cast<uint32_t>(t);
  store(rows + t, Bytes16{{word, word, word, word}});
#if !BROKEN
  sync_warp();
#endif
  const MatrixFragments f = load_matrices(rows + t);  // FAULT
  store(global(params.output) + (32 * cta_index() + t), static_cast<int32_t>(f.word[1]));
}
