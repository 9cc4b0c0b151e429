// SPDX-License-Identifier: Apache-2.0
// A CTA without work ends at once.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
#if BROKEN
  if (cta_index() == 1) return;
#endif
  await_kernel_before();
}
