// shared_dprobs: gradients of all choices' probabilities to those that callers gave
// shared_dprobs top_k=4 shared=2 gate threads=256 bf16_probs
#include "moejit_device/map/shared_choices.cuh"

using namespace moejit::device;

constexpr int32_t kTopK = 4;           // experts that a token is routed to
constexpr int32_t kSharedExperts = 2;  // experts that every token has beside them
constexpr bool kHasGate = true;        // their probability is not 1
constexpr int32_t kThreads = 256;      // per CTA

using Kernel = SharedDprobs<kTopK, kSharedExperts, kHasGate, kThreads, Bf16>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_shared_dprobs_bf16_k4_s2_c38cb7d3,
              SharedDprobsParams) {
  Kernel::run(params);
}
