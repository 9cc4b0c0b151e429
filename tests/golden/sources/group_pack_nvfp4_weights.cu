// pack_nvfp4_weights: NVFP4 matrices [2048, 768] to packed tiles
// weight_pack sections=1 section_rows=2048 columns=768 format=nvfp4
#include "moejit_device/cast/weight_pack_nvfp4.cuh"

using namespace moejit::device;

constexpr int32_t kSections = 1;        // stacked parts, tiles restart at each
constexpr int32_t kSectionRows = 2048;  // rows of each
constexpr int32_t kColumns = 768;       // of a matrix
constexpr bool kInterleaved = false;    // rows of the parts alternate in the input

using Kernel = WeightPackBf16<PackNvfp4, kSections, kSectionRows, kColumns, kInterleaved>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_pack_nvfp4_weights_nvfp4_128x64_fc6e6c2a,
              WeightPackBf16Params) {
  Kernel::run(params);
}
