// activation_backward_quantize: bf16 rows of gate, up and the activation's gradient, gradients of
//   gate, up and probability, rounded to bf16 and cast with the scale of its expert, stored in
//   their order, pad rows as zeros, beside a partial sum of each segment
// row_chain load=gated_gradient_rows transform=activation_backward activation=swiglu
//   quantize=expert format=F8_E5M2 store=grouped_gated_rows columns=2048 local_experts=8 top_k=0
//   epsilon=0 threads=128 segments_in_flight=1 amax=2e+0
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;        // of each half of a row that is stored
constexpr int32_t kAmaxStride = 2;        // columns of the state for each expert
constexpr int32_t kAmaxFirst = 0;         // which of them records the maximum
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 1;  // segments loaded before one is used

// silu(gate) * up
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static ActivationGradients gradients(float gate, float up, float gradient,
                                                     float dprob) {
    const float t1 = sigmoid(gate);
    const float t2 = ptx::multiply(gradient, t1);
    const float t3 = ptx::multiply(t2, gate);
    const float t4 = ptx::add(1.0f, -t1);
    const float t5 = ptx::fused_multiply_add(t3, t4, t2);
    const float t6 = ptx::multiply(t5, up);
    const float t7 = ptx::fused_multiply_add(t3, up, dprob);
    return {.gate = t6, .up = t3, .dprob = t7};
  }
};

using Amax = AmaxIsRecorded<kLocalExperts, kAmaxStride, kAmaxFirst>;
using Store = StoreGroupedGatedRows<kColumns, kLocalExperts>;
using Cast = StoreCast<E5m2, kLocalExperts, Store, Amax>;
using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward<Activation>,
                        QuantizeNone, Cast, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_swiglu_bf16_e5m2_1x128_c1fd923c, RowChainParams) {
  Kernel::run(params);
}
