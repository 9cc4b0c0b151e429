// amax_permuted: bf16 rows, the largest magnitude of 512 columns of a row
// row_chain load=rows transform=identity quantize=amax store=grouped_rows columns=2880
//   local_experts=8 top_k=0 epsilon=0 threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

using Store = StoreGroupedAmax<kColumns, kLocalExperts>;
using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, RoundSetsOfSegments, Store, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_amax_permuted_bf16_f32_1x128_0cfcb188,
              RowChainParams) {
  Kernel::run(params);
}
