// shared_choices: choices of tokens [T, K], and behind them the shared experts of their rank
// shared_choices ranks=1 rank_experts=8 top_k=4 shared=2 gate threads=256 i64_ids bf16_probs
#include "moejit_device/map/shared_choices.cuh"

using namespace moejit::device;

constexpr int32_t kRanks = 1;          // GPUs that share the experts
constexpr int32_t kRankExperts = 8;    // experts of a rank that tokens choose
constexpr int32_t kTopK = 4;           // experts that a token is routed to
constexpr int32_t kSharedExperts = 2;  // experts that every token has beside them
constexpr bool kHasGate = true;        // their probability is not 1
constexpr int32_t kThreads = 256;      // per CTA

using Kernel = SharedChoices<kRanks, kRankExperts, kTopK, kSharedExperts, kHasGate, kThreads,
                             int64_t, Bf16>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_shared_choices_i64_bf16_k4_s2_215a98af,
              SharedChoicesParams) {
  Kernel::run(params);
}
