// take_weight_scales: the experts' scales of an operand of fc1 and of one of fc2, and their
//   inverses
// take_scales experts=8 columns=3e+1 threads=128
#include "moejit_device/cast/take_scales.cuh"

using namespace moejit::device;

constexpr int32_t kExperts = 8;    // with a scale each
constexpr int32_t kStride = 3;     // columns of a state for each expert
constexpr int32_t kFirst = 1;      // which of them is the operand's
constexpr int32_t kThreads = 128;  // per CTA

using Kernel = TakeScales<kExperts, kStride, kFirst, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_take_weight_scales_f32_e8_224c119e,
              TakeScalesParams) {
  Kernel::run(params);
}
