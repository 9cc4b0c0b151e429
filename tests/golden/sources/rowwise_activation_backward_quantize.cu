// activation_backward_quantize: bf16 rows of gate, up and the activation's gradient, gradients of
//   gate, up and probability, rounded to bf16, to e4m3, one power-of-two scale for a row, stored in
//   their order, pad rows as zeros, beside a partial sum of each segment
// row_chain load=gated_gradient_rows transform=activation_backward activation=swiglu quantize=row
//   store=grouped_gated_rows columns=2048 local_experts=8 top_k=0 epsilon=1e-12 threads=256
//   segments_in_flight=1
#include "moejit_device/stage/whole_row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;              // of each half of a row that is stored
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used

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

using Kernel = WholeRowChain<LoadGatedGradientRows<kColumns>,
                             TransformActivationBackward<Activation>, kEpsilonBits,
                             StoreScaledRows<StoreGroupedGatedRows<kColumns, kLocalExperts>>,
                             kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_swiglu_bf16_e4m3_1x2048_16c930d3,
              RowChainParams) {
  Kernel::run(params);
}
