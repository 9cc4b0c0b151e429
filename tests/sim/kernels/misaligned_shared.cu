// SPDX-License-Identifier: Apache-2.0
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
#if BROKEN
  const uint32_t offset = 2;
#else
  const uint32_t offset = 4;
#endif
  const auto slot = shared<int32_t>(offset) + t;
  store(slot, t);  // FAULT
  store(global(params.output) + (64 * cta_index() + t), load(slot));
}
