// activation_quantize: bf16 rows of up, relu_squared * probability, to e4m3, one power-of-two scale
//   for 128 columns of a row, stored in their order, pad rows as zeros
// row_chain load=up_rows transform=activation_probability activation=relu_squared quantize=1x128
//   store=grouped_rows columns=2880 local_experts=8 top_k=0 epsilon=1e-10 threads=128
//   segments_in_flight=2
#include "moejit_device/stage/row_chain.cuh"

using namespace moejit::device;

constexpr int32_t kColumns = 2880;              // of a row that is stored
constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA
constexpr int32_t kSegmentsInFlight = 2;        // segments loaded before one is used

// relu(up) * relu(up)
struct Activation {
  static constexpr bool kIsZeroAtZero = true;
  MOEJIT_DEVICE static float value(float up) {
    const float t1 = ptx::max_or_nan(up, 0.0f);
    const float t2 = ptx::multiply(t1, t1);
    return t2;
  }
};

using Kernel = RowChain<LoadUpRows<kColumns>, TransformActivationProbability<Activation>,
                        Quantize1x128<kEpsilonBits>, StoreGroupedRows<kColumns, kLocalExperts>,
                        kThreads, kSegmentsInFlight>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_activation_quantize_relu_squared_bf16_e4m3_1x128_63ac9c17, RowChainParams) {
  Kernel::run(params);
}
