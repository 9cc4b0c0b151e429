// permute_transpose_x: bf16 rows [T, 7168], with known scales of experts, to e4m3 columns of their
//   experts
// cast_transpose format=F8_E4M3 local_experts=8 columns=7168 zeroes_rows without_rows threads=256
#include "moejit_device/cast/cast_transpose.cuh"

using namespace moejit::device;

constexpr int32_t kLocalExperts = 8;  // groups of rows
constexpr int32_t kColumns = 7168;    // of a row
constexpr bool kZeroes = true;        // rows that were permuted as zeros
constexpr bool kStoresRows = false;   // and not columns alone
constexpr int32_t kThreads = 256;     // per CTA, which holds a tile

using Kernel = CastTranspose<kLocalExperts, kColumns, E4m3, kZeroes, kStoresRows, NoColumn,
                             kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_transpose_x_bf16_e4m3_128x128_92aa4f9f, CastTransposeParams) {
  Kernel::run(params);
}
