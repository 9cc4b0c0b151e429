// gemm_fc1_dgrad: D[P, 2880] = A[P, 5888] * B[expert]^T, one B for the rows of each expert
// grouped_gemm operands=BF16 separate_rows=2880 scales=none epilogue=store_bf16 b_major=mn
//   local_experts=8 sections=1 section_n=2880 k=5888 column_tiles=15x192+0x128 stages=4
//   accumulation=fp32
#include "moejit_device/gemm/separate_weights.cuh"
#include "moejit_device/gemm/accumulating_mainloop.cuh"
#include "moejit_device/gemm/epilogue_store_bf16.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 8;           // groups of rows, one for each expert
constexpr int32_t kSections = 1;         // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2880;      // columns of D from each
constexpr int32_t kK = 5888;             // contraction
constexpr int32_t kStepElements = 64;    // elements of it in a stage
constexpr int32_t kWideColumns = 192;    // columns of a wide tile
constexpr int32_t kWideTiles = 15;       // of a section; behind them
constexpr int32_t kNarrowColumns = 128;  // columns of a narrow tile
constexpr int32_t kNarrowTiles = 0;      // of a section
constexpr int32_t kStages = 4;           // steps of the contraction in shared memory
constexpr int32_t kTailRows = 0;         // no tile is treated as a tail

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = GemmTileShape<kWideColumns, kWideTiles, kNarrowColumns, kNarrowTiles, kStages,
                            kTailRows>;
using Mainloop = AccumulatingMainloop<MultiplyBf16<ptx::Major::kK, ptx::Major::kMn>>;
using Kernel = GroupedGemm<Shape, RowGroupScheduler<Problem, Shape>, Mainloop, NoScales,
                           EpilogueStoreBf16<Problem>>;
using Weights = SeparateWeights<kK / 2>;
using Params = GroupedGemmParamsOf<Weights>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc1_dgrad_bf16_bf16_128x192x64_f8eb94f3, Params) {
  Kernel::run(params);
}
