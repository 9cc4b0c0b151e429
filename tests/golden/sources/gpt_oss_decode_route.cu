// route: top-k ids [T, K] to counts [E], aligned starts [E + 1] and the destination row of every
//   choice [T, K]
// route local_experts=32 top_k=4 splits_alignment=16 warps=16
#include "moejit_device/map/route.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 32;     // E
constexpr int32_t kTopK = 4;              // K
constexpr int32_t kSplitsAlignment = 16;  // each expert's rows start at a multiple of this
constexpr int32_t kWarps = 16;            // of a CTA

using Kernel = Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_i32_e32k4_28511f07, RouteParams) {
  Kernel::run(params);
}
