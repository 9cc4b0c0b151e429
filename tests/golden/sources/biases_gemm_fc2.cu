// gemm_fc2: D[P, 2880] = A[P, 2880] * B[expert]^T, one B for the rows of each expert, and its bias
// grouped_gemm operands=F8_E4M3 scales=row_block epilogue=store_bf16 bias=columns_times_prob
//   local_experts=8 sections=1 section_n=2880 k=2880 column_tiles=15x192+0x128 stages=4
//   blocks_per_promotion=1
#include "moejit_device/gemm/epilogue_biased.cuh"
#include "moejit_device/gemm/epilogue_store_bf16.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/row_block_scales.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;              // groups of rows, one for each expert
constexpr int32_t kSections = 1;            // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2880;         // columns of D from each
constexpr int32_t kK = 2880;                // contraction
constexpr int32_t kStepElements = 128;      // elements of it in a stage
constexpr int32_t kWideColumns = 192;       // columns of a wide tile
constexpr int32_t kWideTiles = 15;          // of a section; behind them
constexpr int32_t kNarrowColumns = 128;     // columns of a narrow tile
constexpr int32_t kNarrowTiles = 0;         // of a section
constexpr int32_t kStages = 4;              // steps of the contraction in shared memory
constexpr int32_t kBlocksPerPromotion = 1;  // steps added up before they are scaled
constexpr bool kBiasTimesProb = true;       // the bias is multiplied with the row's probability
constexpr bool kInterleavedBias = false;    // gate and up alternate in the bias

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages>;
using Mainloop = PromotingMainloop<MultiplyE4m3, kBlocksPerPromotion>;
using Bias = ColumnBias<Problem, kBiasTimesProb, kInterleavedBias>;
using BiasedEpilogue = EpilogueBiased<Bias, EpilogueStoreBf16<Problem>>;
using Kernel = GroupedGemm<Shape, RowGroupScheduler<Problem, Shape>, Mainloop,
                           RowBlockScales<Problem, Shape>, BiasedEpilogue>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_gemm_fc2_e4m3_bf16_128x192x128_671c64b8,
              GroupedGemmParams) {
  Kernel::run(params);
}
