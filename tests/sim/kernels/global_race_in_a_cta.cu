// SPDX-License-Identifier: Apache-2.0
// Clears its part of the output and then stores into it, by another thread.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto output = global(params.output) + 64 * cta_index();
  store(output + t, 0);  // FAULT
#if !BROKEN
  sync_cta();
#endif
  store(output + (63 - t), t);  // FAULT
}
