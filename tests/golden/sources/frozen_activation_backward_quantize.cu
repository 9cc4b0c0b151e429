// activation_backward_quantize: bf16 rows of gate, up and the activation's gradient, gradients of
//   gate, up and probability, to e4m3, one power-of-two scale for 128 columns of a row, stored in
//   their order, pad rows as zeros
// row_chain load=gated_gradient_rows transform=activation_backward activation=swiglu quantize=1x128
//   store=grouped_gated_rows columns=2880 local_experts=8 top_k=0 epsilon=1e-10 threads=128
//   segments_in_flight=1 pitch=2944 without_dprobs
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of each half of a row that is stored
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr int32_t kPitch = 2944;                // columns of a half with the zeros behind it
constexpr bool kInterleaved = false;            // all of gate, then all of up
constexpr bool kTellsDprobs = false;            // nobody asks for the probabilities' gradients
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
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

using Store = StoreGroupedGatedRows<kColumns, kLocalExperts, kPitch, kInterleaved, kTellsDprobs>;
using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward<Activation>,
                        Quantize1x128<kEpsilonBits>, Store, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_swiglu_bf16_e4m3_1x128_78e0efea, RowChainParams) {
  Kernel::run(params);
}
