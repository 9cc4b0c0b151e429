// SPDX-License-Identifier: Apache-2.0
// A warp copies 16 bytes a lane, which an mbarrier tells the other warp.
struct Params {
  const int32_t* input;
  int32_t* output;
};

MOEJIT_KERNEL(64, 1, test_kernel, Params) {
  const int32_t t = thread_index();
  const auto slots = shared<Bytes16>(0);
  const Mbarrier full = shared<uint64_t>(512);
  if (t == 0) init_mbarrier(full, 1);
  sync_cta();
  if (warp_index() == 0) {
    copy_async_16(slots + t, as<const Bytes16>(global(params.input)) + t % 16, true);
#if !BROKEN
    arrive_when_copied(full);
#endif
    sync_warp();
    if (lane_index() == 0) arrive(full);
    return;
  }
  wait(full, 0);
  const Bytes16 value = load(slots + lane_index());  // FAULT
  store(global(params.output) + (32 * cta_index() + lane_index()),
        static_cast<int32_t>(value.word[0]));
}
