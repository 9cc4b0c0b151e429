// SPDX-License-Identifier: Apache-2.0
// The launch has 1024 bytes of shared memory.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const int32_t stride = 5;
#else
  const int32_t stride = 4;
#endif
  const auto slot = shared<int32_t>(0) + stride * t;
  store(slot, t);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), load(slot));
}
