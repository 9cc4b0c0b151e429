// permute_quantize_columns_x: bf16 rows [T, 2880] rounded to values of E2M1, one E4M3 scale for 16
//   rows of a column, below one of each group
// two_level_cast source=gathered result=values blocks=16 columns local_experts=8 columns=2880
//   threads=128
#include "moejit_device/cast/two_level_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;        // groups of rows
constexpr int32_t kMatrixRows = 0;    // rows are no matrices
constexpr int32_t kColumns = 2880;    // of a row
constexpr bool kCastsRows = false;    // a scale for 16 columns of a row
constexpr bool kCastsColumns = true;  // a scale for 16 rows of a column
constexpr int32_t kThreads = 128;     // per CTA, 32 for each stripe of 16 rows

using Kernel = TwoLevelCast<kGroups, kMatrixRows, kColumns, GatheredStripes<kColumns>,
                            ScalesOfLines, StoreTwoLevelValues, kCastsRows, kCastsColumns,
                            kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_quantize_columns_x_bf16_bf16_16x128_4837d7db, TwoLevelCastParams) {
  Kernel::run(params);
}
