// SPDX-License-Identifier: Apache-2.0
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t threads = t < 32 ? 64 : 32;
#else
  const int32_t threads = 64;
#endif
  sync_named(2, threads);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), t);
}
