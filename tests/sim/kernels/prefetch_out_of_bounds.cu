// SPDX-License-Identifier: Apache-2.0
// Asks L2 for more than there is.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const auto input = global(params.input);
#if BROKEN
  const uint32_t bytes = 64 * 4 + 16;
#else
  const uint32_t bytes = 64 * 4;
#endif
  if (thread_index() == 0) prefetch_to_l2(as<const Bytes16>(input), bytes);  // FAULT
  store(global(params.output) + (32 * cta_index() + thread_index()), load(input + thread_index()));
}
