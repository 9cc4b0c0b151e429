// SPDX-License-Identifier: Apache-2.0
// Lanes that should execute one instruction execute two.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  int32_t value = 0;
#if BROKEN
  if (t % 2 == 0) {
    value = shuffle(t, 3);  // FAULT
  } else {
    value = shuffle_up(t, 1);  // FAULT
  }
#else
  value = shuffle(t, 3) + shuffle_up(t, 1);
#endif
  store(global(params.output) + (32 * cta_index() + t), value);
}
