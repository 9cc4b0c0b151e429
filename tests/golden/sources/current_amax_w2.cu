// amax_w2: the largest magnitudes of bf16 matrices [7168, 2048], in pieces
// matrix_amax rows=7168 columns=2048 threads=256
#include "moejit_device/cast/matrix_amax.cuh"

using namespace moejit::device;

constexpr int32_t kRows = 7168;     // of a matrix
constexpr int32_t kColumns = 2048;  // of a matrix
constexpr int32_t kThreads = 256;   // per CTA

using Kernel = MatrixAmax<kRows, kColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_amax_w2_bf16_f32_16384_32fa722b,
              MatrixAmaxParams) {
  Kernel::run(params);
}
