// activation_quantize: bf16 rows of gate and up, clamped_swiglu * probability, to e4m3, one
//   power-of-two scale for 128 columns of a row, stored in their order, pad rows as zeros
// row_chain load=gated_rows transform=activation_probability
//   activation=clamped_swiglu(limit=7,alpha=1.702,offset=1) quantize=1x128 store=grouped_rows
//   columns=2880 local_experts=32 top_k=0 epsilon=1e-10 threads=128 segments_in_flight=2 overlaps
#include "moejit_device/ptx/overlap.cuh"
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of a row that is stored
constexpr int32_t kLocalExperts = 32;           // groups of rows
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 2;        // segments loaded before one is used

// min(gate, 7) * sigmoid(1.702 * min(gate, 7)) * (clamp(up, -7, 7) + 1)
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static float value(float gate, float up) {
    const float t1 = ptx::min_or_nan(gate, 7.0f);
    const float t2 = ptx::multiply(1.702f, t1);
    const float t3 = sigmoid(t2);
    const float t4 = ptx::multiply(t1, t3);
    const float t5 = ptx::max_or_nan(up, -7.0f);
    const float t6 = ptx::min_or_nan(t5, 7.0f);
    const float t7 = ptx::add(t6, 1.0f);
    const float t8 = ptx::multiply(t4, t7);
    return t8;
  }
};

using Kernel = RowChain<LoadGatedRows<kColumns>, TransformActivationProbability<Activation>,
                        Quantize1x128<kEpsilonBits>, StoreGroupedRows<kColumns, kLocalExperts>,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_quantize_clamped_swiglu_bf16_e4m3_1x128_ac3d130e, RowChainParams) {
  ptx::await_kernel_before();
  ptx::start_kernel_behind();
  Kernel::run(params);
}
