// SPDX-License-Identifier: Apache-2.0
// All threads of the CTA must come, except those that have returned.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(96, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  if (t >= 70) return;
#if BROKEN
  if (t == 5) {
    sync_warp();  // FAULT
  } else {
    sync_cta();  // FAULT
  }
#else
  sync_cta();
#endif
  if (t < 64) store(global(params.output) + (64 * cta_index() + t), t);
}
