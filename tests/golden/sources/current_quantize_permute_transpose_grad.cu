// quantize_permute_transpose_grad: bf16 rows [T, 7168], with known scales of experts, to permuted
//   rows and to e5m2 columns of their experts
// cast_transpose format=F8_E5M2 local_experts=8 columns=7168 threads=256
#include "moejit_device/cast/cast_transpose.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;  // groups of rows
constexpr int32_t kColumns = 7168;    // of a row
constexpr bool kZeroes = false;       // rows that were permuted as zeros
constexpr bool kStoresRows = true;    // and not columns alone
constexpr int32_t kThreads = 256;     // per CTA, which holds a tile

using Kernel = CastTranspose<kLocalExperts, kColumns, E5m2, kZeroes, kStoresRows, NoColumn,
                             kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_permute_transpose_grad_bf16_e5m2_128x128_2f883cac,
              CastTransposeParams) {
  Kernel::run(params);
}
