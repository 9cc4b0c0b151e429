// quantize: bf16 rows, to e4m3, one E8M0 scale for 32 columns of a row, stored in their order
// row_chain load=rows transform=identity quantize=1x32 store=rows columns=7168 local_experts=0
//   top_k=0 epsilon=0 threads=128 segments_in_flight=1
#include "moejit_device/stage/quantize_1x32.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Kernel = RowChain<LoadUnchangedRows<kColumns>, TransformIdentity, Quantize1x32,
                        StoreRows<kColumns>, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_bf16_e4m3_1x128_23633abc,
              RowChainParams) {
  Kernel::run(params);
}
