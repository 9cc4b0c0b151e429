// router: logits [T, E] to top-k ids and probabilities [T, K]
// router experts=256 top_k=8 warps=16 router={"score": "sigmoid", "bias": true, "groups": 8,
//   "groups_kept": 4, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5}
#include "moejit_device/map/router.cuh"

using namespace moejit::device;

constexpr int32_t kExperts = 256;  // E
constexpr int32_t kTopK = 8;       // K
constexpr int32_t kWarps = 16;     // of a CTA

struct Formula : UsualRouterFormula {
  static constexpr auto kScore = RouterScore::kSigmoid;
  static constexpr bool kHasBias = true;
  static constexpr int32_t kGroups = 8;
  static constexpr int32_t kGroupsKept = 4;
  static constexpr int32_t kGroupTerms = 2;
  static constexpr auto kNormalize = RouterNormalize::kSum;
  static constexpr float kEpsilon = 1e-20f;
  static constexpr float kScale = 2.5f;
};

using Kernel = Router<Formula, kExperts, kTopK, kWarps, float, int32_t>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_router_sigmoid_f32_e256k8_c75c7198,
              RouterParams) {
  Kernel::run(params);
}
