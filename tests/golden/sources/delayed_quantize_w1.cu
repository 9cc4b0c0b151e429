// quantize_w1: bf16 matrices [4096, 7168] to e4m3, one known scale for each, and transposed
// tile_chain sections=2 section_rows=2048 columns=7168 tiles_per_scale=1 epsilon=0
//   writes_colwise=true expert_scale=true amax=3e+1 threads=256
#include "moejit_device/stage/colwise_tile_chain.cuh"

using namespace moejit::device;

constexpr int32_t kSections = 2;                // stacked parts, tiles restart at each
constexpr int32_t kSectionRows = 2048;          // rows of each
constexpr int32_t kColumns = 7168;              // of a matrix
constexpr int32_t kTilesPerScale = 1;           // neighbouring tiles that share a scale
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr bool kInterleaved = false;            // rows of the parts alternate in the input
constexpr int32_t kAmaxStride = 3;              // columns of the state for each expert
constexpr int32_t kAmaxFirst = 1;               // which of them records the maximum

using Kernel = ColwiseTileChain<kSections, kSectionRows, kColumns, kTilesPerScale, kEpsilonBits,
                                kThreads, kInterleaved,
                                ScaleOfMatrixRecorded<kAmaxStride, kAmaxFirst>>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_bf16_e4m3_128x128_97758565,
              TileChainParams) {
  Kernel::run(params);
}
