// gemm_fc1_wgrad: D[expert][5760, 2880] = A[5760, columns of expert] * B[2880, columns of expert]^T
// contraction_grouped_gemm operands=BF16 scales=tensor accumulation=fp32 output=f32 local_experts=8
//   rows=5760 n=2880 column_tiles=15x192+0x128 stages=4 panels_staged=3 panels_loaded=0
#include "moejit_device/gemm/accumulating_mainloop.cuh"
#include "moejit_device/gemm/contraction_group_scheduler.cuh"
#include "moejit_device/gemm/epilogue_scaled.cuh"
#include "moejit_device/gemm/epilogue_store_gradient.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/params/contraction_grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;           // groups of columns, one for each expert
constexpr int32_t kSections = 1;         // parts of A's rows, each with a D of its own
constexpr int32_t kRows = 5760;          // of A
constexpr int32_t kN = 2880;             // rows of B, columns of D
constexpr int32_t kStepElements = 64;    // of the contraction in a stage
constexpr bool kAdds = false;            // to what D holds; then empty groups are skipped
constexpr int32_t kWideColumns = 192;    // columns of a wide tile
constexpr int32_t kWideTiles = 15;       // in a row of tiles; behind them
constexpr int32_t kNarrowColumns = 128;  // columns of a narrow tile
constexpr int32_t kNarrowTiles = 0;      // in a row of tiles
constexpr int32_t kStages = 4;           // steps of the contraction in shared memory
constexpr int32_t kTailRows = 0;         // no tile is treated as a tail
constexpr int32_t kPanelsStaged = 3;     // 64 rows x 128 bytes of D at a time
constexpr int32_t kPanelsLoaded = 0;     // of a tile, whose old values come

using Problem = ContractionGroupProblem<kGroups, kSections, kRows, kN, kStepElements, kAdds>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages,
                            kTailRows>;
using Mainloop = AccumulatingMainloop<MultiplyBf16<ptx::Major::kMn, ptx::Major::kMn>>;
using Store = EpilogueStoreGradient<Problem, float, kAdds, kPanelsStaged, kPanelsLoaded>;
using Epilogue = EpilogueScaled<TensorFactors, Store>;
using Kernel = GroupedGemm<Shape, ContractionGroupScheduler<Problem, Shape>, Mainloop, NoScales,
                           Epilogue>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc1_wgrad_bf16_f32_128x192x64_adf18ee7, ContractionGroupedGemmParams) {
  Kernel::run(params);
}
