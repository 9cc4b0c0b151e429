// pack_weights: MXFP4 matrices [5760, 2880] to packed tiles, a power-of-two scale each
// weight_pack sections=2 section_rows=2880 columns=2880 interleaved=true
#include "moejit_device/cast/weight_pack.cuh"

using namespace moejit::device;

constexpr int32_t kSections = 2;        // stacked parts, tiles restart at each
constexpr int32_t kSectionRows = 2880;  // rows of each
constexpr int32_t kColumns = 2880;      // of a matrix
constexpr bool kInterleaved = true;     // rows of the parts alternate in the input

using Kernel = WeightPack<kSections, kSectionRows, kColumns, kInterleaved>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_pack_weights_mxfp4_128x128_15fa0479,
              WeightPackParams) {
  Kernel::run(params);
}
