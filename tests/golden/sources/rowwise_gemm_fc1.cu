// gemm_fc1: D[P, 4096] = A[P, 7168] * B[expert]^T, one B for the rows of each expert
// grouped_gemm operands=F8_E4M3 scales=row_column epilogue=store_bf16 local_experts=8 sections=1
//   section_n=4096 k=7168 column_tiles=20x192+2x128 stages=4 cluster_ctas=2 accumulation=fast
#include "moejit_device/gemm/accumulating_mainloop.cuh"
#include "moejit_device/gemm/epilogue_scaled.cuh"
#include "moejit_device/gemm/epilogue_store_bf16.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;           // groups of rows, one for each expert
constexpr int32_t kSections = 1;         // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 4096;      // columns of D from each
constexpr int32_t kK = 7168;             // contraction
constexpr int32_t kStepElements = 128;   // elements of it in a stage
constexpr int32_t kWideColumns = 192;    // columns of a wide tile
constexpr int32_t kWideTiles = 20;       // of a section; behind them
constexpr int32_t kNarrowColumns = 128;  // columns of a narrow tile
constexpr int32_t kNarrowTiles = 2;      // of a section
constexpr int32_t kStages = 4;           // steps of the contraction in shared memory
constexpr int32_t kTailRows = 64;        // most rows of a tail
constexpr int32_t kClusterCtas = 2;      // CTAs that share B, with tiles below each other

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages,
                            kTailRows, kClusterCtas>;
using Mainloop = AccumulatingMainloop<MultiplyE4m3>;
using Epilogue = EpilogueScaled<RowColumnFactors<Problem>, EpilogueStoreBf16<Problem>>;
using Kernel = GroupedGemm<Shape, RowGroupScheduler<Problem, Shape>, Mainloop, NoScales, Epilogue>;

MOEJIT_CLUSTER_KERNEL(kClusterCtas, Kernel::kThreads, Kernel::kCtasPerSm,
                      moejit_gemm_fc1_e4m3_bf16_128x192x128_a99731d5, GroupedGemmParams) {
  Kernel::run(params);
}
