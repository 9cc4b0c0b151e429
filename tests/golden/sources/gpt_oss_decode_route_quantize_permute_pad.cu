// route_quantize_permute_pad: destinations of all choices, and bf16 rows, to e4m3, one power-of-two
//   scale for 128 columns of a row, stored to every destination of the row, and pad rows
// route_permute most_choices=1024 route local_experts=32 top_k=4 splits_alignment=16 warps=4
//   row_chain load=rows transform=identity quantize=1x128 store=permuted columns=2880
//   local_experts=32 top_k=4 epsilon=1e-10 threads=128 segments_in_flight=1 overlaps
#include "moejit_device/ptx/overlap.cuh"
#include "moejit_device/stage/route_permute.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of a row that is stored
constexpr int32_t kTopK = 4;                    // experts that a token is routed to
constexpr int32_t kLocalExperts = 32;           // groups of rows
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used
constexpr int32_t kSplitsAlignment = 16;        // each expert's rows start at a multiple of this
constexpr bool kHasColwiseOffs = false;         // starts of groups of columns, multiples of 128
constexpr bool kIgnoresForeign = false;         // ids from kLocalExperts on are like -1
constexpr int32_t kHistograms = 0;              // where the route's begin in shared memory
constexpr int32_t kMostChoices = 1024;          // that each CTA routes

using Rows = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
                      StorePermuted<kColumns, kTopK, kLocalExperts>, kThreads, kSegmentsInFlight>;
using Routing = Route<kLocalExperts, kTopK, kSplitsAlignment, kThreads / 32, kHasColwiseOffs,
                      int32_t, kIgnoresForeign, kHistograms>;
using Kernel = RoutePermute<Routing, Rows, kMostChoices>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_route_quantize_permute_pad_bf16_e4m3_1x128_f528d0d5, RoutePermuteParams) {
  ptx::await_kernel_before();
  ptx::start_kernel_behind();
  Kernel::run(params);
}
