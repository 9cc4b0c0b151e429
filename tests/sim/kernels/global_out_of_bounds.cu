// SPDX-License-Identifier: Apache-2.0
// 64 numbers come in.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t last = 64;
#else
  const int32_t last = 63;
#endif
  const auto input = global(params.input) + (last - t);
  const int32_t value = load(input);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), value);
}
