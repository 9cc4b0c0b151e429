// SPDX-License-Identifier: Apache-2.0
// Three of four warps use the barrier.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t threads = 128;
#else
  const int32_t threads = 96;
#endif
  const auto slots = shared<int32_t>(0);
  if (t < 96) {
    store(slots + t, t);
    sync_named(3, threads);  // FAULT
    const int32_t value = load(slots + (95 - t));
    if (t < 64) store(global(params.output) + (64 * cta_index() + t), value);
  }
}
