// SPDX-License-Identifier: Apache-2.0
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(16, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<Bytes16>(0);
  const auto input = as<const Bytes16>(global(params.input));
  copy_async_16(slots + t, input + t, true);
  commit_async_copies();
#if !BROKEN
  wait_async_copies<0>();
#endif
  store(as<int32_t>(slots + t), t);  // FAULT
#if BROKEN
  wait_async_copies<0>();
#endif
  store(global(params.output) + (16 * cta_index() + t), load(as<int32_t>(slots + t)));
}
