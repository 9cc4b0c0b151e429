// SPDX-License-Identifier: Apache-2.0
// A pipeline of two slots: a copy may start when all have read what the slot held.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(16, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<Bytes16>(0);
  const auto input = as<const Bytes16>(global(params.input));
  int32_t sum = 0;
  copy_async_16(slots + t, input + t, true);
  commit_async_copies();
  for (int32_t round = 0; round < 4; ++round) {
    const int32_t next = 16 * ((round + 1) % 2) + t;
#if BROKEN
    copy_async_16(slots + next, input + t, true);  // FAULT
    commit_async_copies();
    wait_async_copies<1>();
    sync_cta();
#else
    wait_async_copies<0>();
    sync_cta();
    copy_async_16(slots + next, input + t, true);
    commit_async_copies();
#endif
    sum += static_cast<int32_t>(load(slots + (16 * (round % 2) + 15 - t)).word[0]);  // FAULT
  }
  store(global(params.output) + (16 * cta_index() + t), sum);
}
