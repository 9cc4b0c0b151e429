// unpermute_grad: the sum of each token's bf16 rows, rounded to bf16, stored in their order, and
//   the gradients of their probabilities
// row_chain load=combined_rows transform=identity quantize=none store=rows_and_probs columns=2880
//   local_experts=0 top_k=4 epsilon=0 threads=128 segments_in_flight=1 dprobs_columns=23
//   bias_dprobs bf16_probs
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
constexpr int32_t kTopK = 4;              // experts that a token is routed to
constexpr int32_t kDprobsColumns = 23;    // blocks of a row's dprobs
constexpr bool kAddsBiasDprobs = true;    // what the bias adds, behind the blocks
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StoreRowsAndProbs<kColumns, kTopK, kDprobsColumns, kAddsBiasDprobs, Bf16>;
using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone, Store,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_unpermute_grad_bf16_bf16_1x128_6b2e68aa,
              RowChainParams) {
  Kernel::run(params);
}
