// SPDX-License-Identifier: Apache-2.0
// Loads 8 bytes from rows of 4 or 8 bytes.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(8, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t words = 1;
#else
  const int32_t words = 2;
#endif
  const auto row = as<const Bytes8>(global(params.input) + words * t);
  const Bytes8 pair = load(row);  // FAULT
  store(global(params.output) + (8 * cta_index() + t), static_cast<int32_t>(pair.word[0]));
}
