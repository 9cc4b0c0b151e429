// SPDX-License-Identifier: Apache-2.0
// Nobody has written the output before the launch.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = 32 * cta_index() + thread_index();
  const auto output = global(params.output) + t;
#if !BROKEN
  store(output, 0);
#endif
  const int32_t old = load(output);  // FAULT
  store(output, old + t);
}
