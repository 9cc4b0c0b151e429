// quantize_permute_pad_grad: bf16 rows, to e4m3, one power-of-two scale for 128 columns of a row,
//   stored in their order and to every destination of the row, and pad rows
// row_chain load=rows transform=identity quantize=1x128 store=rows_and_permuted columns=7168
//   local_experts=8 top_k=8 epsilon=1e-10 without_probs threads=128 segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 7168;              // of a row that is stored
constexpr int32_t kTopK = 8;                    // experts that a token is routed to
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr bool kMovesProbs = false;             // probabilities stay, and zero no rows
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used

using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
                        StoreRowsAndPermuted<kColumns, kTopK, kLocalExperts, kMovesProbs>, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_pad_grad_bf16_e4m3_1x128_ce6e4ebf, RowChainParams) {
  Kernel::run(params);
}
