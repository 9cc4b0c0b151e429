// activation_quantize: bf16 rows of gate and up, swiglu * probability, rounded to bf16 and cast
//   with the scale of its expert, stored in their order, pad rows as zeros
// row_chain load=gated_rows transform=activation_probability activation=swiglu quantize=expert
//   format=F8_E4M3 store=grouped_rows columns=2048 local_experts=8 top_k=0 epsilon=0 threads=128
//   segments_in_flight=2 amax=3e+0
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2048;        // of a row that is stored
constexpr int32_t kAmaxStride = 3;        // columns of the state for each expert
constexpr int32_t kAmaxFirst = 0;         // which of them records the maximum
constexpr int32_t kLocalExperts = 8;      // groups of rows
constexpr int32_t kThreads = 128;         // per CTA
constexpr int32_t kSegmentsInFlight = 2;  // segments loaded before one is used

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

using Amax = AmaxIsRecorded<kLocalExperts, kAmaxStride, kAmaxFirst>;
using Store = StoreGroupedRows<kColumns, kLocalExperts>;
using Cast = StoreCast<E4m3, kLocalExperts, Store, Amax>;
using Kernel = RowChain<LoadGatedRows<kColumns>, TransformActivationProbability<Activation>,
                        QuantizeNone, Cast, kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_quantize_swiglu_bf16_e4m3_1x128_af82f895, RowChainParams) {
  Kernel::run(params);
}
