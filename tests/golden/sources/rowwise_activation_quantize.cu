// activation_quantize: bf16 rows of gate and up, swiglu * probability, rounded to bf16, to e4m3,
//   one power-of-two scale for a row, stored in their order, pad rows as zeros
// row_chain load=gated_rows transform=activation_probability activation=swiglu quantize=row
//   store=grouped_rows columns=2048 local_experts=8 top_k=0 epsilon=1e-12 threads=256
//   segments_in_flight=1
#include "moejit_device/stage/whole_row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;              // of a row that is stored
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA
constexpr int32_t kSegmentsInFlight = 1;        // segments loaded before one is used

// silu(gate) * up
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static float value(float gate, float up) {
    const float t1 = sigmoid(gate);
    const float t2 = ptx::multiply(gate, t1);
    const float t3 = ptx::multiply(t2, up);
    return t3;
  }
};

using Kernel = WholeRowChain<LoadGatedRows<kColumns>, TransformActivationProbability<Activation>,
                             kEpsilonBits,
                             StoreScaledRows<StoreGroupedRows<kColumns, kLocalExperts>>, kThreads,
                             kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_quantize_swiglu_bf16_e4m3_1x2048_f893dbea, RowChainParams) {
  Kernel::run(params);
}
