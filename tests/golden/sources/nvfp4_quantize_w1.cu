// quantize_w1: bf16 rows [matrices, 2880] rounded to values of E2M1, one E4M3 scale for 16x16,
//   below one of each matrix
// two_level_cast source=in_order result=values blocks=16x16 rows local_experts=8 matrix_rows=5760
//   columns=2880 threads=128
#include "moejit_device/cast/two_level_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 0;         // all rows are real
constexpr int32_t kMatrixRows = 5760;  // of each matrix
constexpr int32_t kColumns = 2880;     // of a row
constexpr bool kCastsRows = true;      // along a row
constexpr bool kCastsColumns = false;  // along a column
constexpr int32_t kThreads = 128;      // per CTA, 32 for each stripe of 16 rows

using Kernel = TwoLevelCast<kGroups, kMatrixRows, kColumns, StripesInOrder<kColumns>, ScalesOfTiles,
                            StoreTwoLevelValues, kCastsRows, kCastsColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_w1_bf16_bf16_16x128_592ececa,
              TwoLevelCastParams) {
  Kernel::run(params);
}
