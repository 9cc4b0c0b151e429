// SPDX-License-Identifier: Apache-2.0
// Reads what another thread stored.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<int32_t>(0);
  store(slots + t, 1);
  sync_cta();
  store(slots + t, 2);  // FAULT
#if !BROKEN
  sync_cta();
#endif
  const int32_t value = load(slots + (t ^ 33));  // FAULT
  store(global(params.output) + (64 * cta_index() + t), value);
}
