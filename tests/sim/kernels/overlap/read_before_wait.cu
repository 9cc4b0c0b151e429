// SPDX-License-Identifier: Apache-2.0
// Reads what the kernel before writes, and waits for that kernel behind.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const int32_t early = load(global(params.neither) + t);  // may be read at once
#if !BROKEN
  await_kernel_before();
#endif
  const int32_t value = load(global(params.written) + t);  // FAULT
  await_kernel_before();
  start_kernel_behind();
  if (cta_index() == 0) store(global(params.read) + t, early + value);
}
