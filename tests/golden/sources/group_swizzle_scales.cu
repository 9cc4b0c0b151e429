// swizzle_scales: E8M0 scales of 32 columns of a row to tiles of 128x4 of their experts
// swizzle_scales of=rows local_experts=8 columns=7168
#include "moejit_device/cast/swizzle_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 7168;  // of the rows that were cast

using Kernel = SwizzleScales<kGroups, kColumns, ScalesOfRows<kColumns>>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_swizzle_scales_e8m0_128x4_44e56653,
              SwizzleScalesParams) {
  Kernel::run(params);
}
