// multi_cast_transpose: a list of bf16 tensors, each with a scale, to e4m3 and its transpose, and
//   the largest magnitude of each
// multi_cast_transpose input=BF16 output=F8_E4M3 threads=256
#include "moejit_device/cast/multi_cast_transpose.cuh"

using namespace moejit::device;

constexpr int32_t kThreads = 256;  // per CTA, which holds a tile

using Kernel = MultiCastTranspose<Bf16Input, E4m3, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_multi_cast_transpose_bf16_e4m3_128x128_9c59c344, MultiCastTransposeParams) {
  Kernel::run(params);
}
