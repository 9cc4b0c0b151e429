// quantize_w1: bf16 matrices [5760, 2880] to e4m3, one power-of-two scale for each 128x128 tile,
//   and transposed
// tile_chain sections=2 section_rows=2880 columns=2880 tiles_per_scale=1 epsilon=0
//   writes_colwise=true separate=true threads=256
#include "moejit_device/stage/colwise_tile_chain.cuh"

using namespace moejit::device;

constexpr int32_t kSections = 2;                // stacked parts, tiles restart at each
constexpr int32_t kSectionRows = 2880;          // rows of each
constexpr int32_t kColumns = 2880;              // of a matrix
constexpr int32_t kTilesPerScale = 1;           // neighbouring tiles that share a scale
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr bool kInterleaved = false;            // rows of the parts alternate in the input
constexpr bool kSeparate = true;                // each of the two parts is an input of its own

using Kernel = ColwiseTileChain<kSections, kSectionRows, kColumns, kTilesPerScale, kEpsilonBits,
                                kThreads, kInterleaved, ScaleOfTile<kEpsilonBits>, kSeparate>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_bf16_e4m3_128x128_ab77ef48,
              TileChainParams) {
  Kernel::run(params);
}
