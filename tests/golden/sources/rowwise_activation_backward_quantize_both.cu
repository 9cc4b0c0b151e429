// activation_backward_quantize_both: gradients of gate, up and probability from bf16 rows, rounded
//   to bf16, to e4m3 rows with a scale each and, with the activation itself, to columns of their
//   experts with their known scales
// gated_gradient local_experts=8 columns=2048 activation=swiglu epsilon=1e-12 threads=256
//   casts_columns pass=cast
#include "moejit_device/transpose/gated_gradient_columns.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr int32_t kColumns = 2048;              // of gate and of up
constexpr int32_t kPitch = 2048;                // of a half that is stored
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA

// silu(gate) * up
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static float value(float gate, float up) {
    const float t1 = sigmoid(gate);
    const float t2 = ptx::multiply(gate, t1);
    const float t3 = ptx::multiply(t2, up);
    return t3;
  }
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

using Kernel = GatedGradientCasts<kLocalExperts, kColumns, kPitch, Activation,
                                  ScalesOfRows<kEpsilonBits>, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_both_swiglu_bf16_e4m3_128x128_f9f73222,
              GatedGradientParams) {
  Kernel::run(params);
}
