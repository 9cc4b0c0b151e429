// permute_quantize_columns_x: bf16 rows [T, 2880] rounded to values of e4m3, one E8M0 scale for 32
//   rows of a column
// block_cast source=gathered result=values columns local_experts=8 columns=2880 threads=128
#include "moejit_device/cast/block_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;        // groups of rows
constexpr int32_t kColumns = 2880;    // of a row
constexpr bool kCastsRows = false;    // a scale for 32 columns of a row
constexpr bool kCastsColumns = true;  // a scale for 32 rows of a column
constexpr int32_t kThreads = 128;     // per CTA, 32 for each block of 32 rows

using Kernel = BlockCast<kGroups, kColumns, GatheredBlocks<kColumns>, StoreValues, kCastsRows,
                         kCastsColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_quantize_columns_x_bf16_bf16_32x128_103c5f7d, BlockCastParams) {
  Kernel::run(params);
}
