// quantize_w2: bf16 rows of matrices, rounded to bf16, to e4m3, one power-of-two scale for a row,
//   stored in their order
// row_chain load=matrix_rows transform=identity quantize=row store=rows columns=2048
//   local_experts=8 top_k=0 epsilon=1e-12 threads=256 segments_in_flight=2 sections=1
//   section_rows=7168
#include "moejit_device/stage/whole_row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;              // of a row that is stored
constexpr int32_t kSections = 1;                // equal parts of a matrix's rows
constexpr int32_t kSectionRows = 7168;          // rows of each
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr int32_t kSegmentsInFlight = 2;        // segments loaded before one is used

using Kernel = WholeRowChain<LoadMatrixRows<kColumns, kSections, kSectionRows>, TransformIdentity,
                             kEpsilonBits, StoreScaledRows<StoreRows<kColumns>>, kThreads,
                             kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w2_bf16_e4m3_1x2048_76603fec,
              RowChainParams) {
  Kernel::run(params);
}
