// route: top-k ids [T, K] to counts [E], aligned starts [E + 1] and the destination row of every
//   choice [T, K]
// route local_experts=8 top_k=4 splits_alignment=64 colwise_offs warps=32 ignores_foreign
#include "moejit_device/map/route.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;      // E
constexpr int32_t kTopK = 4;              // K
constexpr int32_t kSplitsAlignment = 64;  // each expert's rows start at a multiple of this
constexpr int32_t kWarps = 32;            // of a CTA
constexpr bool kHasColwiseOffs = true;    // starts of groups of columns, multiples of 128
constexpr bool kIgnoresForeign = true;    // ids from kLocalExperts on are like -1

using Kernel = Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs, int32_t,
                     kIgnoresForeign>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_i32_e8k4_487edb88, RouteParams) {
  Kernel::run(params);
}
