// quantize_permute_pad_grad: bf16 rows, rounded to bf16, to e4m3, one power-of-two scale for a row,
//   stored to every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=row store=permuted columns=7168 local_experts=8
//   top_k=8 epsilon=1e-12 without_probs threads=224 segments_in_flight=2
#include "moejit_device/stage/whole_row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;              // of a row that is stored
constexpr int32_t kTopK = 8;                    // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr bool kKeeps = false;                  // whether rows are stored in their order too
constexpr bool kMovesProbs = false;             // probabilities stay, and zero no rows
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 224;               // per CTA
constexpr int32_t kSegmentsInFlight = 2;        // segments loaded before one is used

using Store = StorePermutedScaledRows<kColumns, kTopK, kLocalExperts, kKeeps, kMovesProbs>;
using Kernel = WholeRowChain<LoadRows<kColumns>, TransformIdentity, kEpsilonBits, Store, kThreads,
                             kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_pad_grad_bf16_e4m3_1x7168_915fdfe1, RowChainParams) {
  Kernel::run(params);
}
