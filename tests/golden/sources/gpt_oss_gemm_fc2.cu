// gemm_fc2: D[P, 2880] = A[P, 2880] * B[expert]^T, one B for the rows of each expert
// grouped_gemm local_experts=32 sections=1 section_n=2880 k=2880 tile=128x128x128 warps=2x4
//   stages=3
#include "moejit_device/gemm/grouped_gemm.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 32;  // groups of rows
constexpr int32_t kSections = 1;       // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2880;    // columns of D from each
constexpr int32_t kK = 2880;           // contraction
constexpr int32_t kTileM = 128;        // rows of D that a CTA computes at a time
constexpr int32_t kTileN = 128;        // columns likewise
constexpr int32_t kTileK = 128;        // contraction between two scalings
constexpr int32_t kWarpsM = 2;         // warps that share the rows of a tile
constexpr int32_t kWarpsN = 4;         // warps that share its columns
constexpr int32_t kStages = 3;         // blocks of the contraction in shared memory
constexpr int32_t kThreads = 256;      // per CTA

using Problem = GemmProblem<kLocalExperts, kSections, kSectionN, kK>;
using Shape = GemmTileShape<kTileM, kTileN, kTileK, kWarpsM, kWarpsN>;
using Kernel = GroupedGemm<Shape, GroupedScheduler<Problem, Shape>,
                           MainloopMmaSyncFp8Blockscaled<Problem, Shape, kStages>,
                           EpilogueStoreBf16<Problem, Shape>>;

MOEJIT_KERNEL(kThreads, Kernel::kCtasPerSm, moejit_gemm_fc2_e4m3_bf16_128x128x128_adb54801,
              GroupedGemmParams) {
  Kernel::run(params);
}
