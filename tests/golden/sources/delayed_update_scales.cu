// update_scales: histories of largest magnitudes on by a step, and the scales of the next one
// update_scales columns=24 history_length=1024 largest=448 algorithm=max threads=1024
#include "moejit_device/cast/update_scales.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 24;            // of each state
constexpr int32_t kLength = 1024;           // steps of a history
constexpr uint32_t kMaxBits = 0x43e00000u;  // 448: the format's largest number, less the margin
constexpr bool kMostRecent = false;         // scales follow from this step alone
constexpr int32_t kThreads = 1024;          // per CTA

using Kernel = UpdateScales<kColumns, kLength, kMaxBits, kMostRecent, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_update_scales_f32_1024x24_595e6855,
              UpdateScalesParams) {
  Kernel::run(params);
}
