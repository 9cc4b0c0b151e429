// SPDX-License-Identifier: Apache-2.0
// Each CTA owns 64 numbers of the output.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t stride = 63;
#else
  const int32_t stride = 64;
#endif
  const auto to = global(params.output) + (stride * cta_index() + t);
  store(to, t);  // FAULT
}
