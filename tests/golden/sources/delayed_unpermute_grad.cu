// unpermute_grad: the sum of each token's bf16 rows, rounded to bf16, stored in their order, and
//   the gradients of their probabilities
// row_chain load=combined_rows transform=identity quantize=none store=rows_and_probs columns=7168
//   local_experts=0 top_k=8 epsilon=0 threads=128 segments_in_flight=1 dprobs_columns=16
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kTopK = 8;              // experts that a token is routed to
constexpr int32_t kDprobsColumns = 16;    // blocks of a row's dprobs
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone,
                        StoreRowsAndProbs<kColumns, kTopK, kDprobsColumns>, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_unpermute_grad_bf16_bf16_1x128_337400e4,
              RowChainParams) {
  Kernel::run(params);
}
