// SPDX-License-Identifier: Apache-2.0
// Writes what the kernel before may still read.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const int32_t value = load(global(params.neither) + t);
#if !BROKEN
  await_kernel_before();
#endif
  if (cta_index() == 0) store(global(params.read) + t, value);  // FAULT
  await_kernel_before();
}
