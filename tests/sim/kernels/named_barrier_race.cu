// SPDX-License-Identifier: Apache-2.0
// Warp 0 produces for warp 1 through one barrier and for warps 2 and 3 through another.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<int32_t>(0);
  int32_t value = 0;
  for (int32_t round = 0; round < 3; ++round) {
    if (t < 32) store(slots + t, round);  // FAULT
    if (t < 64) sync_named(1, 64);
#if BROKEN
    if (t >= 64) sync_named(2, 64);
#else
    if (t < 32 || t >= 64) sync_named(2, 96);
#endif
    if (t >= 32) value += load(slots + (t % 32));  // FAULT
    sync_cta();
  }
  if (t < 64) store(global(params.output) + (64 * cta_index() + t), value);
}
