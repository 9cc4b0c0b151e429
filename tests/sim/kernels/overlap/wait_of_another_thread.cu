// SPDX-License-Identifier: Apache-2.0
// The first thread waits, and another one reads with nothing between the two.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
#if BROKEN
  if (thread_index() == 0) await_kernel_before();
#else
  await_kernel_before();
#endif
  const int32_t value = load(global(params.written) + thread_index());  // FAULT
  if (cta_index() == 0) store(global(params.read) + thread_index(), value);  // FAULT
}
