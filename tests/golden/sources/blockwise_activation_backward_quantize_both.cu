// activation_backward_quantize_both: gradients of gate, up and probability from bf16 rows, rounded
//   to bf16, to e4m3 rows with 1x128 scales and, with the activation itself, to columns of their
//   experts, one power-of-two scale for 128 tokens of a column
// gated_gradient local_experts=8 columns=2880 activation=swiglu epsilon=0 threads=256 casts_columns
#include "moejit_device/transpose/gated_gradient_columns.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr int32_t kColumns = 2880;              // of gate and of up
constexpr int32_t kPitch = 2944;                // of a half that is stored, with zeros behind
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
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

using Kernel = GatedGradientColumns<kLocalExperts, kColumns, kPitch, Activation, kEpsilonBits,
                                    kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_both_swiglu_bf16_e4m3_128x128_316123c1,
              GatedGradientParams) {
  Kernel::run(params);
}
