// update_grad_scales: histories of largest magnitudes on by a step, and the scales of the next one
// update_scales columns=16 history_length=1024 largest=57344 algorithm=max threads=1024
#include "moejit_device/cast/update_scales.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 16;            // of each state
constexpr int32_t kLength = 1024;           // steps of a history
constexpr uint32_t kMaxBits = 0x47600000u;  // 57344: the format's largest number, less the margin
constexpr bool kMostRecent = false;         // scales follow from this step alone
constexpr int32_t kThreads = 1024;          // per CTA

using Kernel = UpdateScales<kColumns, kLength, kMaxBits, kMostRecent, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_update_grad_scales_f32_1024x16_c84a6e9d,
              UpdateScalesParams) {
  Kernel::run(params);
}
