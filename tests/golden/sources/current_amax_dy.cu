// amax_dy: bf16 rows, the largest magnitude of 512 columns of a row, to every destination of the
//   row
// row_chain load=rows transform=identity quantize=amax store=permuted columns=7168 local_experts=0
//   top_k=8 epsilon=0 without_probs threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kTopK = 8;              // experts that a token is routed to
constexpr bool kMovesProbs = false;       // probabilities stay, and zero no rows
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StorePermutedAmax<kColumns, kTopK, kMovesProbs>;
using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, RoundSetsOfSegments, Store, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_amax_dy_bf16_f32_1x128_120ff61e,
              RowChainParams) {
  Kernel::run(params);
}
