// SPDX-License-Identifier: Apache-2.0
// Copies what the kernel before writes into shared memory.
struct Params {
  const int32_t* written;
  int32_t* read;
  const int32_t* neither;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const auto ready = shared<uint64_t>(512);
  if (thread_index() == 0) {
    init_mbarrier(ready, 1);
    fence_mbarrier_init();
  }
  sync_cta();
#if !BROKEN
  await_kernel_before();
#endif
  if (thread_index() == 0) {
    arrive_expecting(ready, 256);
    const auto written = as<const Bytes16>(global(params.written));
    load_bulk(shared<Bytes16>(0), written, 256, ready);  // FAULT
  }
  wait(ready, 0);
  await_kernel_before();
  const int32_t t = thread_index();
  if (cta_index() == 0) store(global(params.read) + t, load(shared<int32_t>(0) + t));
}
