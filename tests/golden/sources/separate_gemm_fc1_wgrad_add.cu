// gemm_fc1_wgrad_add: D[expert][5760, 2880] += A[5888, columns of expert] * B[2880, columns of
//   expert]^T
// contraction_grouped_gemm scales=tile output=f32_add local_experts=8 rows=5888 sections=2
//   section_rows=2880 separate=true n=2880 column_tiles=15x192+0x128 stages=4 panels_staged=3
//   panels_loaded=0 start_times=8
#include "moejit_device/gemm/section_maps.cuh"
#include "moejit_device/gemm/contraction_group_scheduler.cuh"
#include "moejit_device/gemm/epilogue_store_gradient.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/staggered_start.cuh"
#include "moejit_device/gemm/tile_scales.cuh"
#include "moejit_device/params/separate_gradients_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;              // groups of columns, one for each expert
constexpr int32_t kSections = 2;            // parts of A's rows, each with a D of its own
constexpr int32_t kRows = 5888;             // of A
constexpr int32_t kN = 2880;                // rows of B, columns of D
constexpr int32_t kStepElements = 128;      // of the contraction in a stage
constexpr bool kAdds = true;                // to what D holds; then empty groups are skipped
constexpr int32_t kWideColumns = 192;       // columns of a wide tile
constexpr int32_t kWideTiles = 15;          // in a row of tiles; behind them
constexpr int32_t kNarrowColumns = 128;     // columns of a narrow tile
constexpr int32_t kNarrowTiles = 0;         // in a row of tiles
constexpr int32_t kStages = 4;              // steps of the contraction in shared memory
constexpr int32_t kTailRows = 0;            // no tile is treated as a tail
constexpr int32_t kBlocksPerPromotion = 1;  // steps added up before they are scaled
constexpr int32_t kPanelsStaged = 3;        // 64 rows x 128 bytes of D at a time
constexpr int32_t kPanelsLoaded = 0;        // of a tile, whose old values come
constexpr int32_t kStartTimes = 8;          // of CTAs, spread over that of a tile

using Problem = ContractionGroupProblem<kGroups, kSections, kRows, kN, kStepElements, kAdds>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages,
                            kTailRows>;
using Mainloop = PromotingMainloop<MultiplyBlockedE4m3, kBlocksPerPromotion>;
using Epilogue = EpilogueStoreGradient<Problem, float, kAdds, kPanelsStaged, kPanelsLoaded>;
using Scheduler = StaggeredStart<Problem, ContractionGroupScheduler<Problem, Shape>, kStartTimes>;
using Kernel = GroupedGemm<Shape, Scheduler, Mainloop, TileScales<Problem, Shape>, Epilogue>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc1_wgrad_add_e4m3_f32_128x192x128_13f36f2f, SeparateGradientsParams) {
  Kernel::run(params);
}
