// SPDX-License-Identifier: Apache-2.0
// Atomic additions need no barrier between each other, but one before a plain load.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto counter = shared<int32_t>(16);
  if (t == 0) store(counter, 0);
  sync_cta();
  atomic_add(counter, t);  // FAULT
#if !BROKEN
  sync_cta();
#endif
  const int32_t value = load(counter);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), value);
}
