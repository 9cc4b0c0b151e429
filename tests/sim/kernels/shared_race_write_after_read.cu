// SPDX-License-Identifier: Apache-2.0
// Uses the same slots in two rounds.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<int32_t>(0);
  int32_t sum = 0;
  for (int32_t round = 0; round < 2; ++round) {
    store(slots + t, round);  // FAULT
    sync_cta();
    sum += load(slots + (63 - t));  // FAULT
#if !BROKEN
    sync_cta();
#endif
  }
  store(global(params.output) + (64 * cta_index() + t), sum);
}
