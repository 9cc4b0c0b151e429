// SPDX-License-Identifier: Apache-2.0
// Half of the threads wait at another barrier than the rest.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  if (t < 32) {
    sync_cta();  // FAULT
  } else {
    sync_named(1, 64);  // FAULT
  }
#else
  if (t < 32) {
    sync_named(1, 64);  // FAULT
  } else {
    sync_named(1, 64);  // FAULT
  }
#endif
  store(global(params.output) + (64 * cta_index() + t), t);
}
