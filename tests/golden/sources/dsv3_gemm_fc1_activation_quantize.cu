// gemm_fc1_activation_quantize: D[P, 4096] = A[P, 7168] * B[expert]^T, one B for the rows of each
//   expert; swiglu * probability of D, to e4m3, one power-of-two scale for 128 columns of a row
// grouped_gemm operands=F8_E4M3 scales=row_block epilogue=activation_quantize local_experts=32
//   sections=2 section_n=2048 k=7168 column_tiles=16x128 tile_sections=2 activation=swiglu
//   epsilon=1e-10 stages=4 blocks_per_promotion=1
#include "moejit_device/gemm/epilogue_activation_quantize.cuh"
#include "moejit_device/gemm/gated_tile.cuh"
#include "moejit_device/gemm/grouped_gemm.cuh"
#include "moejit_device/gemm/halved_mainloop.cuh"
#include "moejit_device/gemm/halved_row_block_scales.cuh"
#include "moejit_device/gemm/row_group_scheduler.cuh"
#include "moejit_device/params/grouped_gemm_params.h"

using namespace moejit::device;

constexpr int32_t kGroups = 32;                 // groups of rows, one for each expert
constexpr int32_t kSections = 2;                // stacked matrices in B, as gate and up
constexpr int32_t kSectionN = 2048;             // columns of D from each
constexpr int32_t kK = 7168;                    // contraction
constexpr int32_t kStepElements = 128;          // elements of it in a stage
constexpr int32_t kStages = 4;                  // steps of the contraction in shared memory
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale

// silu(gate) * up
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static float value(float gate, float up) {
    const float t1 = sigmoid(gate);
    const float t2 = ptx::multiply(gate, t1);
    const float t3 = ptx::multiply(t2, up);
    return t3;
  }
};

using Problem = RowGroupProblem<kGroups, kSections, kSectionN, kK, kStepElements>;
using Shape = GatedTileShape<kSectionN, kStages>;
using Mainloop = HalvedMainloop<MultiplyE4m3>;
using Kernel = GroupedGemm<Shape, RowGroupScheduler<Problem, Shape>, Mainloop,
                           HalvedRowBlockScales<Problem, Shape>,
                           EpilogueActivationQuantize<Problem, Activation, kEpsilonBits>>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_gemm_fc1_activation_quantize_swiglu_e4m3_e4m3_128x256x128_a6fab4b7,
              GroupedGemmParams) {
  Kernel::run(params);
}
