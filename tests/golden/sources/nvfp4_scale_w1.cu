// scale_w1: largest magnitudes of matrices to one scale for each expert, a quotient
// expert_scales format=F4_E2M1X2 magnitudes=1013 of=matrices threads=1024
#include "moejit_device/cast/expert_scales.cuh"

using namespace moejit::device;

constexpr int32_t kMagnitudes = 1013;       // of a matrix
constexpr uint32_t kMaxBits = 0x45280000u;  // 2688: the largest number times the largest of E4M3
constexpr bool kPowerOfTwo = false;         // scales are rounded down to powers of two
constexpr int32_t kThreads = 1024;          // per CTA

using Kernel = ExpertScales<MagnitudesOfMatrices<kMagnitudes>, kMaxBits, kPowerOfTwo, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_w1_e2m1_m1013_a88d1f2b,
              ExpertScalesParams) {
  Kernel::run(params);
}
