// activation_backward: bf16 rows of gate, up and the activation's gradient, gradients of gate, up
//   and probability, rounded to bf16, stored in their order, pad rows as zeros
// row_chain load=gated_gradient_rows transform=activation_backward activation=swiglu quantize=none
//   store=grouped_gated_rows columns=2048 local_experts=8 top_k=0 epsilon=0 threads=128
//   segments_in_flight=1 without_dprobs
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;        // of each half of a row that is stored
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr bool kInterleaved = false;      // all of gate, then all of up
constexpr bool kTellsDprobs = false;      // nobody asks for the probabilities' gradients
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

using Store = StoreGroupedGatedRows<kColumns, kLocalExperts, kColumns, kInterleaved, kTellsDprobs>;
using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward<Activation>,
                        QuantizeNone, Store, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_swiglu_bf16_bf16_1x128_445698de, RowChainParams) {
  Kernel::run(params);
}
