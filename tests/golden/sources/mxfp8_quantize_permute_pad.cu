// quantize_permute_pad: bf16 rows, rounded to values of e4m3, one E8M0 scale for 32 columns of a
//   row, stored to every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=1x32_values store=permuted columns=2880
//   local_experts=8 top_k=4 epsilon=0 tells_tokens threads=128 segments_in_flight=1
#include "moejit_device/stage/quantize_1x32.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
constexpr int32_t kTopK = 4;              // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr bool kMovesProbs = true;        // beside the rows; 0 zeros the row
constexpr bool kTellsTokens = true;       // whose row each permuted one is
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StorePermuted<kColumns, kTopK, kLocalExperts, kMovesProbs, Bf16, kTellsTokens>;
using Kernel = RowChain<LoadUnchangedRows<kColumns>, TransformIdentity, Recover1x32, Store,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_pad_bf16_bf16_1x128_e6d941af, RowChainParams) {
  Kernel::run(params);
}
