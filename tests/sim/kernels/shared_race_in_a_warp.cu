// SPDX-License-Identifier: Apache-2.0
// A shuffle makes lanes meet, but only sync_warp orders their memory.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<int32_t>(0);
  store(slots + t, t);
#if BROKEN
  const int32_t partner = shuffle_xor(t, 1);
#else
  const int32_t partner = shuffle_xor(t, 1);
  sync_warp();
#endif
  const int32_t value = load(slots + partner);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), value);
}
