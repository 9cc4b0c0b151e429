// router_backward: gradients of top-k probabilities [T, K] to those of logits [T, E]
// router_backward experts=128 top_k=8 warps=16 router={"normalize": "sum", "logits_dtype": "bf16"}
#include "moejit_device/map/router_backward.cuh"

using namespace moejit::device;

constexpr int32_t kExperts = 128;  // E
constexpr int32_t kTopK = 8;       // K
constexpr int32_t kWarps = 16;     // of a CTA

struct Formula : UsualRouterFormula {
  static constexpr bool kOrdersLogits = true;
  static constexpr auto kNormalize = RouterNormalize::kSum;
};

using Kernel = RouterBackward<Formula, kExperts, kTopK, kWarps, Bf16, int32_t>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_router_backward_softmax_bf16_e128k8_fb38df8f, RouterBackwardParams) {
  Kernel::run(params);
}
