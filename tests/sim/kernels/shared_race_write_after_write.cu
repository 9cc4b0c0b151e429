// SPDX-License-Identifier: Apache-2.0
// Every thread stores the number of its warp's half into one slot of the half.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const bool stores = true;
#else
  const bool stores = t % 16 == 0;
#endif
  const auto slot = shared<int32_t>(0) + t / 16;
  if (stores) {
    store(slot, t / 16);  // FAULT
  }
  sync_cta();
  store(global(params.output) + (64 * cta_index() + t), load(slot));
}
