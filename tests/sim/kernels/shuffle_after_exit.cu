// SPDX-License-Identifier: Apache-2.0
// A lane has returned.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  if (t == 40) return;
  sync_cta();
#else
  if (t >= 32) return;
#endif
  const uint32_t lanes = ballot(t % 2 == 0);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), static_cast<int32_t>(lanes));
}
