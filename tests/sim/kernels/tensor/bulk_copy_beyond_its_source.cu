// SPDX-License-Identifier: Apache-2.0
// A line of memory ends before the place that is kept for it.
MOEJIT_KERNEL(128, 1, test_kernel, Params) {
  make_barriers();
  if (thread_index() == 0) {
    const int32_t bytes = BROKEN ? 144 : 128;
    arrive_expecting(full_barrier(), bytes);
    load_bulk(shared<Bytes16>(kA), as<const Bytes16>(global(params.a) + (2048 - 32)),  // FAULT
              bytes, full_barrier());
  }
  wait(full_barrier(), 0);
}
