// quantize_permute_columns_grad: bf16 rows [T, 2880] to permuted e4m3 rows and to columns of their
//   experts, a power-of-two scale for 128 values of either
// cast_transpose format=F8_E4M3 local_experts=8 columns=2880 finds_scales epsilon=0 threads=128
#include "moejit_device/transpose/gathered_casts.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;            // groups of rows
constexpr int32_t kColumns = 2880;              // of a row
constexpr bool kZeroes = false;                 // rows that were permuted as zeros
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA, which holds a tile

using Kernel = GatheredCasts<kLocalExperts, kColumns, kZeroes, kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_columns_grad_bf16_e4m3_128x128_6e9ff8cb,
              CastTransposeParams) {
  Kernel::run(params);
}
