// activation_backward_quantize_transpose: gradients of gate, up and probability from bf16 rows, to
//   e5m2 rows, and with the activation itself, with known scales of experts, to columns of these
// gated_gradient local_experts=8 columns=2048 activation=swiglu epsilon=0 threads=256 expert_scale
//   format=F8_E5M2
#include "moejit_device/transpose/gated_gradient_tiles.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;  // groups of rows
constexpr int32_t kColumns = 2048;    // of gate and of up
constexpr int32_t kPitch = 2048;      // of a half that is stored, with zeros behind
constexpr int32_t kThreads = 256;     // per CTA

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

using Kernel = GatedGradientTiles<kLocalExperts, kColumns, kPitch, Activation, CastOfExpert<E5m2>,
                                  kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_transpose_swiglu_bf16_e5m2_128x128_6e3ef07d,
              GatedGradientParams) {
  Kernel::run(params);
}
