// unpermute: the sum of each token's bf16 rows, rounded to bf16, stored in their order
// row_chain load=combined_rows transform=identity quantize=none store=rows columns=2880
//   local_experts=0 top_k=4 epsilon=0 threads=128 segments_in_flight=1 overlaps
#include "moejit_device/ptx/overlap.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
constexpr int32_t kTopK = 4;              // experts that a token is routed to
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone,
                        StoreRows<kColumns>, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_unpermute_bf16_bf16_1x128_8a439aaa,
              RowChainParams) {
  ptx::await_kernel_before();
  ptx::start_kernel_behind();
  Kernel::run(params);
}
