// scale_w2: largest magnitudes of matrices to one scale for each expert, a quotient
// expert_scales format=F8_E4M3 magnitudes=896 of=matrices threads=1024
#include "moejit_device/cast/expert_scales.cuh"

using namespace moejit::device;

constexpr int32_t kMagnitudes = 896;        // of a matrix
constexpr uint32_t kMaxBits = 0x43e00000u;  // 448: the largest number of the format
constexpr bool kPowerOfTwo = false;         // scales are rounded down to powers of two
constexpr int32_t kThreads = 1024;          // per CTA

using Kernel = ExpertScales<MagnitudesOfMatrices<kMagnitudes>, kMaxBits, kPowerOfTwo, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_w2_e4m3_m896_66eb943b,
              ExpertScalesParams) {
  Kernel::run(params);
}
