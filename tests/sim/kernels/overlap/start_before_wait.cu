// SPDX-License-Identifier: Apache-2.0
// Lets the kernel behind begin, which takes the kernel two before for complete.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
#if BROKEN
  start_kernel_behind();  // FAULT
#endif
  await_kernel_before();
  start_kernel_behind();
}
