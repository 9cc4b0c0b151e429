// unpermute_dprobs: gradients of the rows' probabilities [P], in blocks, to the choices of tokens
//   [T, K]
// unpermute_dprobs top_k=4 dprobs_columns=23 bias_dprobs threads=128
#include "moejit_device/map/unpermute_dprobs.cuh"

using namespace moejit::device;

constexpr int32_t kTopK = 4;            // experts that a token is routed to
constexpr int32_t kDprobsColumns = 23;  // blocks of a row's dprobs
constexpr bool kAddsBiasDprobs = true;  // what the bias adds, behind the blocks
constexpr int32_t kThreads = 128;       // per CTA

using Kernel = UnpermuteDprobs<kTopK, kDprobsColumns, kAddsBiasDprobs, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_unpermute_dprobs_f32_k4_938561c1,
              UnpermuteDprobsParams) {
  Kernel::run(params);
}
