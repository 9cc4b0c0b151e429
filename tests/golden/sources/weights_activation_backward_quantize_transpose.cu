// activation_backward_quantize_transpose: gradients of gate, up and probability from bf16 rows,
//   with the activation itself, to columns of their experts with 128x128 scales
// gated_gradient local_experts=8 columns=2880 activation=swiglu epsilon=1e-10 threads=256
//   without_rows
#include "moejit_device/transpose/gated_gradient_tiles.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr int32_t kColumns = 2880;              // of gate and of up
constexpr int32_t kPitch = 2944;                // of a half that is stored, with zeros behind
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr bool kTransposesGradient = true;      // and not the activation alone

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

using Store = StoreGroupedDprobs<kColumns, kLocalExperts>;
using Kernel = GatedGradientTiles<kLocalExperts, kColumns, kPitch, Activation,
                                  Quantize1x128<kEpsilonBits>, kThreads, Store,
                                  kTransposesGradient>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_backward_quantize_transpose_swiglu_bf16_e4m3_128x128_2057e8f5,
              GatedGradientParams) {
  Kernel::run(params);
}
