// gemm_fc2: D[P, 2880] = A[P, 2880] * B[expert]^T, one B for the rows of each expert
// grouped_gemm operands=F8_E4M3 scales=row_block epilogue=store_bf16 local_experts=32 sections=1
//   section_n=2880 k=2880 column_tiles=23x128 swapped_rows=64 stages=8 blocks_per_promotion=1
//   overlap=loads_b
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/gemm/swapped_epilogue_store_bf16.cuh"
#include "moejit_device/gemm/swapped_row_block_scales.cuh"
#include "moejit_device/gemm/swapped_tile.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 32;                 // groups of rows, one for each expert
constexpr int32_t kSections = 1;                // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2880;             // columns of D from each
constexpr int32_t kK = 2880;                    // contraction
constexpr int32_t kStepElements = 128;          // elements of it in a stage
constexpr int32_t kRows = 64;                   // most rows of a tile
constexpr int32_t kColumnTiles = 23;            // of 128 columns, in a section
constexpr int32_t kStages = 8;                  // steps of the contraction in shared memory
constexpr int32_t kBlocksPerPromotion = 1;      // steps added up before they are scaled
constexpr int32_t kBandTiles = 16;              // row tiles in a band
constexpr bool kZerosRest = false;              // the rest of D is left alone
constexpr Overlap kOverlap = Overlap::kLoadsB;  // what comes ahead of the wait

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = SwappedTileShape<kRows, kColumnTiles, kStages>;
using Mainloop = PromotingMainloop<MultiplyE4m3, kBlocksPerPromotion>;
using Kernel = GroupedGemm<Shape,
                           RowGroupScheduler<Problem, Shape, kBandTiles, GroupsOfMemory<true>>,
                           Mainloop, SwappedRowBlockScales<Problem, Shape>,
                           SwappedEpilogueStoreBf16<Problem>, kZerosRest, kOverlap>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_gemm_fc2_e4m3_bf16_64x128x128_ee3afe99,
              GroupedGemmParams) {
  Kernel::run(params);
}
