// permute_pad: bf16 rows, unchanged, stored to every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=keep store=permuted columns=2880 local_experts=8
//   top_k=4 epsilon=0 threads=128 segments_in_flight=1 bf16_probs
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
constexpr int32_t kTopK = 4;              // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr bool kMovesProbs = true;        // beside the rows; 0 zeros the row
constexpr bool kTellsTokens = false;      // whose row each permuted one is
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StorePermuted<kColumns, kTopK, kLocalExperts, kMovesProbs, Bf16, kTellsTokens, Bf16>;
using Kernel = RowChain<LoadUnchangedRows<kColumns>, TransformIdentity, QuantizeKeep, Store,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_permute_pad_bf16_bf16_1x128_4a9bcd02,
              RowChainParams) {
  Kernel::run(params);
}
