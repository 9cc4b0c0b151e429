// amax_w1: the largest magnitudes of bf16 matrices [4096, 7168], in pieces
// matrix_amax rows=4096 columns=7168 threads=256
#include "moejit_device/cast/matrix_amax.cuh"

using namespace moejit::device;

constexpr int32_t kRows = 4096;     // of a matrix
constexpr int32_t kColumns = 7168;  // of a matrix
constexpr int32_t kThreads = 256;   // per CTA

using Kernel = MatrixAmax<kRows, kColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_amax_w1_bf16_f32_16384_c7321aa3,
              MatrixAmaxParams) {
  Kernel::run(params);
}
