// quantize_permute_pad: bf16 rows, rounded to bf16 and cast with the scale of its expert, stored to
//   every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=expert format=F8_E4M3 store=permuted columns=7168
//   local_experts=8 top_k=8 epsilon=0 tells_tokens threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kTopK = 8;              // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr bool kMovesProbs = true;        // beside the rows; 0 zeros the row
constexpr bool kTellsTokens = true;       // whose row each permuted one is
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StorePermutedCast<kColumns, kTopK, kLocalExperts, kMovesProbs, E4m3, float,
                                AmaxIsDropped, kTellsTokens>;
using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, QuantizeNone, Store, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_pad_bf16_e4m3_1x128_6e946b7c, RowChainParams) {
  Kernel::run(params);
}
