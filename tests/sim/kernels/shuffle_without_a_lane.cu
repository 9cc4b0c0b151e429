// SPDX-License-Identifier: Apache-2.0
// A lane takes another way.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  int32_t value = t;
#if BROKEN
  if (t != 7) {
    value = shuffle_xor(value, 1);  // FAULT
  }
#else
  value = shuffle_xor(value, 1);
#endif
  sync_warp();
  store(global(params.output) + (32 * cta_index() + t), value);
}
