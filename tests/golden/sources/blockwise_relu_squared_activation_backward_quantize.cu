// activation_backward_quantize: bf16 rows of up and the activation's gradient, gradients of up and
//   probability, rounded to bf16, to e4m3, one power-of-two scale for 128 columns of a row, stored
//   in their order, pad rows as zeros, beside a partial sum of each segment
// row_chain load=up_gradient_rows transform=activation_backward activation=relu_squared
//   quantize=1x128_rounded store=grouped_up_rows columns=2880 local_experts=8 top_k=0 epsilon=0
//   threads=128 segments_in_flight=1
#include "moejit_device/stage/quantize_rounded.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of a row that is stored
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used

// relu(up) * relu(up)
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static ActivationGradients gradients(float up, float gradient,
                                                     float dprob) {
    const float t1 = ptx::max_or_nan(up, 0.0f);
    const float t2 = ptx::add(t1, t1);
    const float t3 = ptx::multiply(gradient, t2);
    const float t4 = up <= 0.0f ? 0.0f : t3;
    const float t5 = ptx::multiply(gradient, t1);
    const float t6 = ptx::fused_multiply_add(t5, t1, dprob);
    return {.gate = 0.0f, .up = t4, .dprob = t6};
  }
};

using Kernel = RowChain<LoadUpGradientRows<kColumns>, TransformActivationBackward<Activation>,
                        Quantize1x128Rounded<kEpsilonBits>,
                        StoreGroupedUpRows<kColumns, kLocalExperts>, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_relu_squared_bf16_e4m3_1x128_9a97a6f6,
              RowChainParams) {
  Kernel::run(params);
}
