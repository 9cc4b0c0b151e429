// quantize_permute_pad: bf16 rows, to e4m3, one power-of-two scale for 128 columns of a row, stored
//   to every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=1x128 store=permuted columns=2880 local_experts=8
//   top_k=4 epsilon=0 tells_tokens threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of a row that is stored
constexpr int32_t kTopK = 4;                    // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr bool kMovesProbs = true;              // beside the rows; 0 zeros the row
constexpr bool kTellsTokens = true;             // whose row each permuted one is
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used

using Store = StorePermuted<kColumns, kTopK, kLocalExperts, kMovesProbs, E4m3, kTellsTokens>;
using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>, Store,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_pad_bf16_e4m3_1x128_104526ee, RowChainParams) {
  Kernel::run(params);
}
