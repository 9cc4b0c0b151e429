// permute_pad: e4m3 rows with their scales, unchanged, stored to every destination of the row, and
//   pad rows
// row_chain load=quantized_rows transform=identity quantize=keep store=permuted columns=7168
//   local_experts=32 top_k=8 epsilon=0 threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;        // of a row that is stored
constexpr int32_t kTopK = 8;              // experts that a token is routed to
constexpr int32_t kLocalExperts = 32;     // groups of rows
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Kernel = RowChain<LoadQuantizedRows<kColumns>, TransformIdentity, QuantizeKeep,
                        StorePermuted<kColumns, kTopK, kLocalExperts>, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_permute_pad_e4m3_e4m3_1x128_12445e1b,
              RowChainParams) {
  Kernel::run(params);
}
