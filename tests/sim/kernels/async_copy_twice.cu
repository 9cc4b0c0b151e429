// SPDX-License-Identifier: Apache-2.0
// Two copies of 4 bytes; to one place they would land in any order.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<float>(0);
  const auto input = as<const float>(global(params.input)) + t;
  copy_async_4(slots + t, input, true);
#if BROKEN
  const int32_t second = t;
#else
  const int32_t second = 32 + t;
#endif
  copy_async_4(slots + second, input, false);  // FAULT
  commit_async_copies();
  wait_async_copies<0>();
  store(as<float>(global(params.output)) + (32 * cta_index() + t), load(slots + t));
}
