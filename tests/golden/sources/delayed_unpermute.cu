// unpermute: the sum of each token's bf16 rows, rounded to bf16, stored in their order
// row_chain load=combined_rows transform=identity quantize=none store=rows columns=7168
//   local_experts=0 top_k=8 epsilon=0 threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kTopK = 8;              // experts that a token is routed to
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone,
                        StoreRows<kColumns>, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_unpermute_bf16_bf16_1x128_5248c499,
              RowChainParams) {
  Kernel::run(params);
}
