// SPDX-License-Identifier: Apache-2.0
// Sums pairs of numbers in shared memory of which only every second one was stored.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<int32_t>(0);
  store(slots + 2 * t, load(global(params.input) + t));
#if !BROKEN
  store(slots + (2 * t + 1), 0);
#endif
  const int32_t sum = load(slots + 2 * t) +
                      load(slots + (2 * t + 1));  // FAULT
  store(global(params.output) + (64 * cta_index() + t), sum);
}
