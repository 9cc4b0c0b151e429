// two_level_swizzle_scales: E4M3 scales of 16 tokens of a column to tiles of 128x4 of their experts
// swizzle_scales of=columns group=16 local_experts=8 columns=7168
#include "moejit_device/cast/swizzle_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 7168;  // of the rows that were cast

using Kernel = SwizzleScales<kGroups, kColumns, ScalesOfTransposedColumns<kColumns>>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_two_level_swizzle_scales_e4m3_128x4_9d0e820e, SwizzleScalesParams) {
  Kernel::run(params);
}
