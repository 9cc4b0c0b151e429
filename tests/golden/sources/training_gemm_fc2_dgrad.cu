// gemm_fc2_dgrad: D[P, 2048] = A[P, 7168] * B[expert]^T, one B for the rows of each expert
// grouped_gemm operands=F8_E4M3 scales=row_block epilogue=store_bf16 local_experts=8 sections=1
//   section_n=2048 k=7168 column_tiles=8x256+0x128 stages=4 blocks_per_promotion=1
#include "moejit_device/gemm/epilogue_store_bf16.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/halved_mainloop.cuh"
#include "moejit_device/gemm/halved_row_block_scales.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;           // groups of rows, one for each expert
constexpr int32_t kSections = 1;         // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2048;      // columns of D from each
constexpr int32_t kK = 7168;             // contraction
constexpr int32_t kStepElements = 128;   // elements of it in a stage
constexpr int32_t kWideColumns = 256;    // columns of a wide tile
constexpr int32_t kWideTiles = 8;        // of a section; behind them
constexpr int32_t kNarrowColumns = 128;  // columns of a narrow tile
constexpr int32_t kNarrowTiles = 0;      // of a section
constexpr int32_t kStages = 4;           // steps of the contraction in shared memory

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages>;
using Mainloop = HalvedMainloop<MultiplyE4m3>;
using Kernel = GroupedGemm<Shape, RowGroupScheduler<Problem, Shape>, Mainloop,
                           HalvedRowBlockScales<Problem, Shape>, EpilogueStoreBf16<Problem>>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc2_dgrad_e4m3_bf16_128x256x128_e8cd5db4, GroupedGemmParams) {
  Kernel::run(params);
}
