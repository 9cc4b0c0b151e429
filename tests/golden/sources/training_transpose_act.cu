// transpose_act: e4m3 rows [P, 2048] with 1x128 scales to columns of their experts with 128x128
//   scales, rounded to nearest even
// transpose format=F8_E4M3 rule=ideal local_experts=8 columns=2048 counts_flushed=false
//   band_tiles=1 threads=128
#include "moejit_device/transpose/transpose.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 2048;  // of a row that is read
constexpr int32_t kBandTiles = 1;   // tiles of rows that are walked side by side
constexpr int32_t kThreads = 128;   // per CTA, 64 for each tile

using Kernel = Transpose<kGroups, kColumns, RowsInOrder<kColumns>, IdealRescale<E4m3>,
                         IgnoreFlushed, kBandTiles, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_transpose_act_e4m3_e4m3_128x128_2a70ccd4,
              TransposeParams) {
  Kernel::run(params);
}
