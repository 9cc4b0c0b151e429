// quantize_w1: bf16 rows [matrices, 2880] rounded to values of e4m3, one E8M0 scale for 32 columns
//   of a row, and again for 32 rows of a column
// block_cast source=in_order result=values rows columns local_experts=8 matrix_rows=5760
//   columns=2880 threads=128
#include "moejit_device/cast/block_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 0;        // all rows are real
constexpr int32_t kColumns = 2880;    // of a row
constexpr bool kCastsRows = true;     // a scale for 32 columns of a row
constexpr bool kCastsColumns = true;  // a scale for 32 rows of a column
constexpr int32_t kThreads = 128;     // per CTA, 32 for each block of 32 rows

using Kernel = BlockCast<kGroups, kColumns, BlocksInOrder<kColumns>, StoreValues, kCastsRows,
                         kCastsColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_bf16_bf16_32x128_87df7867,
              BlockCastParams) {
  Kernel::run(params);
}
