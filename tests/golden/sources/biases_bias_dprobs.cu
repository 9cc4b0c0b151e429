// bias_dprobs: e4m3 rows [P, 2880] times the bias of their experts
// row_dots input=F8_E4M3 local_experts=8 columns=2880 threads=256
#include "moejit_device/bias/row_dots.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;     // groups of rows
constexpr int32_t kPitch = 2880;   // columns of a row
constexpr int32_t kThreads = 256;  // per CTA, 32 for each row

using Kernel = RowDots<E4m3GradientRows<kPitch>, kGroups, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_bias_dprobs_e4m3_f32_1x128_d1f56d6c,
              BiasGradientParams) {
  Kernel::run(params);
}
