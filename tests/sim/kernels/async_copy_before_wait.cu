// SPDX-License-Identifier: Apache-2.0
// Every thread copies 16 bytes and uses them.
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
#if BROKEN
  wait_async_copies<1>();
#else
  wait_async_copies<0>();
#endif
  const Bytes16 value = load(slots + t);  // FAULT
  store(global(params.output) + (16 * cta_index() + t), static_cast<int32_t>(value.word[0]));
}
