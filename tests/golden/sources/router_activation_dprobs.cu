// activation_dprobs: bf16 rows of gate, up and the activation's gradient, the gradient of the
//   probability, stored as a partial sum of each segment, pad rows as zeros
// row_chain load=gated_gradient_rows transform=activation_backward activation=swiglu quantize=none
//   store=grouped_dprobs columns=2880 local_experts=8 top_k=0 epsilon=0 threads=128
//   segments_in_flight=1
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;        // of a row that is stored
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

using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward<Activation>,
                        QuantizeNone, StoreGroupedDprobs<kColumns, kLocalExperts>, kThreads,
                        kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_dprobs_swiglu_bf16_f32_1x128_179ce4fb, RowChainParams) {
  Kernel::run(params);
}
