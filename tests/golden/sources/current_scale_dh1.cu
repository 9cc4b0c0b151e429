// scale_dh1: largest magnitudes of rows to one scale for each expert, a quotient
// expert_scales format=F8_E5M2 magnitudes=4 of=rows threads=1024
#include "moejit_device/cast/expert_scales.cuh"

using namespace moejit::device;

constexpr int32_t kMagnitudes = 4;          // of a row
constexpr uint32_t kMaxBits = 0x47600000u;  // 57344: the largest number of the format
constexpr bool kPowerOfTwo = false;         // scales are rounded down to powers of two
constexpr int32_t kThreads = 1024;          // per CTA

using Kernel = ExpertScales<MagnitudesOfRows<kMagnitudes>, kMaxBits, kPowerOfTwo, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_dh1_e5m2_m4_9e35b54f,
              ExpertScalesParams) {
  Kernel::run(params);
}
