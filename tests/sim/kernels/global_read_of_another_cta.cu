// SPDX-License-Identifier: Apache-2.0
// CTAs of a launch have no order.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(32, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto output = global(params.output) + 32 * cta_index();
  store(output + t, t);  // FAULT
#if BROKEN
  const auto other = global(params.output) + (32 * (cta_count() - 1 - cta_index()) + t);
#else
  const auto other = output + t;
#endif
  const int32_t value = load(other);  // FAULT
  store(output + t, value + 1);  // FAULT
}
