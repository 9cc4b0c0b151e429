// quantize_columns_dh1: bf16 rows [P, 5760] rounded to values of e4m3, one E8M0 scale for 32
//   columns of a row, and again for 32 rows of a column
// block_cast source=in_order result=values rows columns local_experts=8 columns=5760 threads=128
#include "moejit_device/cast/block_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;        // groups of rows
constexpr int32_t kColumns = 5760;    // of a row
constexpr bool kCastsRows = true;     // a scale for 32 columns of a row
constexpr bool kCastsColumns = true;  // a scale for 32 rows of a column
constexpr int32_t kThreads = 128;     // per CTA, 32 for each block of 32 rows

using Kernel = BlockCast<kGroups, kColumns, BlocksInOrder<kColumns>, StoreValues, kCastsRows,
                         kCastsColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_columns_dh1_bf16_bf16_32x128_5824927f, BlockCastParams) {
  Kernel::run(params);
}
