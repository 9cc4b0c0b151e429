// SPDX-License-Identifier: Apache-2.0
// Lanes of one warp must come to a barrier by the same instruction.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const bool first = t % 2 == 0;
#else
  const bool first = t / 32 == 0;
#endif
  if (first) {
    sync_cta();  // FAULT
  } else {
    sync_cta();  // FAULT
  }
  store(global(params.output) + (64 * cta_index() + t), t);
}
