// router_backward: gradients of top-k probabilities [T, K] to those of logits [T, E]
// router_backward experts=64 top_k=6 warps=4 router={"score": {"expression": "tanh(logit) *
//   logit"}, "softcap": 30}
#include "moejit_device/core/math.cuh"
#include "moejit_device/map/router_backward.cuh"

using namespace moejit::device;

constexpr int32_t kExperts = 64;  // E
constexpr int32_t kTopK = 6;      // K
constexpr int32_t kWarps = 4;     // of a CTA

struct Formula : UsualRouterFormula {
  static constexpr auto kScore = RouterScore::kExpression;
  static constexpr float kSoftcap = 30.0f;
  MOEJIT_DEVICE static float value(float logit) {
    const float t1 = ptx::hyperbolic_tangent(logit);
    const float t2 = ptx::multiply(t1, logit);
    return t2;
  }
  MOEJIT_DEVICE static float slope(float logit) {
    const float t1 = ptx::hyperbolic_tangent(logit);
    const float t2 = ptx::multiply(t1, t1);
    const float t3 = ptx::add(1.0f, -t2);
    const float t4 = ptx::multiply(t3, logit);
    const float t5 = ptx::add(t4, t1);
    return t5;
  }
};

using Kernel = RouterBackward<Formula, kExperts, kTopK, kWarps, float, int32_t>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_router_backward_expression_f32_e64k6_803de372, RouterBackwardParams) {
  Kernel::run(params);
}
