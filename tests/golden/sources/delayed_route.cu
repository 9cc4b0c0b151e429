// route: top-k ids [T, K] to counts [E], aligned starts [E + 1] and the destination row of every
//   choice [T, K]
// route local_experts=8 top_k=8 splits_alignment=16 colwise_offs warps=32
#include "moejit_device/map/route.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;      // E
constexpr int32_t kTopK = 8;              // K
constexpr int32_t kSplitsAlignment = 16;  // each expert's rows start at a multiple of this
constexpr int32_t kWarps = 32;            // of a CTA
constexpr bool kHasColwiseOffs = true;    // starts of groups of columns, multiples of 128

using Kernel = Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_i32_e8k8_1b8dad75, RouteParams) {
  Kernel::run(params);
}
