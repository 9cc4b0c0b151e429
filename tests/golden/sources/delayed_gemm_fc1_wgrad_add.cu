// gemm_fc1_wgrad_add: D[expert][4096, 7168] += A[4096, columns of expert] * B[7168, columns of
//   expert]^T
// contraction_grouped_gemm a=F8_E5M2 scales=tensor accumulation=fp32 output=f32_add local_experts=8
//   rows=4096 n=7168 column_tiles=36x192+2x128 stages=4 panels_staged=3 panels_loaded=0
//   start_times=8
#include "moejit_device/gemm/contraction_group_scheduler.cuh"
#include "moejit_device/gemm/epilogue_scaled.cuh"
#include "moejit_device/gemm/epilogue_store_gradient.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/gemm/staggered_start.cuh"
#include "moejit_device/params/contraction_grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;              // groups of columns, one for each expert
constexpr int32_t kSections = 1;            // parts of A's rows, each with a D of its own
constexpr int32_t kRows = 4096;             // of A
constexpr int32_t kN = 7168;                // rows of B, columns of D
constexpr int32_t kStepElements = 128;      // of the contraction in a stage
constexpr bool kAdds = true;                // to what D holds; then empty groups are skipped
constexpr int32_t kWideColumns = 192;       // columns of a wide tile
constexpr int32_t kWideTiles = 36;          // in a row of tiles; behind them
constexpr int32_t kNarrowColumns = 128;     // columns of a narrow tile
constexpr int32_t kNarrowTiles = 2;         // in a row of tiles
constexpr int32_t kStages = 4;              // steps of the contraction in shared memory
constexpr int32_t kTailRows = 0;            // no tile is treated as a tail
constexpr int32_t kBlocksPerPromotion = 1;  // steps that are one partial sum
constexpr int32_t kPanelsStaged = 3;        // 64 rows x 128 bytes of D at a time
constexpr int32_t kPanelsLoaded = 0;        // of a tile, whose old values come
constexpr int32_t kStartTimes = 8;          // of CTAs, spread over that of a tile

using Problem = ContractionGroupProblem<kGroups, kSections, kRows, kN, kStepElements, kAdds>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages,
                            kTailRows>;
using Mainloop = PromotingMainloop<MultiplyBlockedE5m2E4m3, kBlocksPerPromotion>;
using Store = EpilogueStoreGradient<Problem, float, kAdds, kPanelsStaged, kPanelsLoaded>;
using Epilogue = EpilogueScaled<TensorFactors, Store>;
using Scheduler = StaggeredStart<Problem, ContractionGroupScheduler<Problem, Shape>, kStartTimes>;
using Kernel = GroupedGemm<Shape, Scheduler, Mainloop, NoScales, Epilogue>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc1_wgrad_add_e5m2_e4m3_f32_128x192x128_fbb2c860,
              ContractionGroupedGemmParams) {
  Kernel::run(params);
}
