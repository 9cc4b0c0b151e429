// route: a routing map [T, E] to counts [E], aligned starts [E + 1] and the destination row of
//   every choice [T, K]
// route_map local_experts=64 top_k=8 splits_alignment=16 warps=32
#include "moejit_device/map/route_map.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 64;     // E
constexpr int32_t kTopK = 8;              // K, the most experts of a token
constexpr int32_t kSplitsAlignment = 16;  // each expert's rows start at a multiple of this
constexpr int32_t kWarps = 32;            // of a CTA
constexpr bool kHasColwiseOffs = false;   // starts of groups of columns, multiples of 128

using Kernel = RouteMap<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_u8_e64k8_71fdef53, RouteParams) {
  Kernel::run(params);
}
