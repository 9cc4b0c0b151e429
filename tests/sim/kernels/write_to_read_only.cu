// SPDX-License-Identifier: Apache-2.0
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = 32 * cta_index() + thread_index();
#if BROKEN
  const auto to = global(const_cast<int32_t*>(params.input)) + thread_index();
#else
  const auto to = global(params.output) + t;
#endif
  store(to, t);  // FAULT
}
