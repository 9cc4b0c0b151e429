// two_level_quantize: bf16 rows [T, 7168] to E2M1, one E4M3 scale for 16 columns of a row, below
//   one of all rows
// two_level_cast source=in_order result=codes blocks=16 rows local_experts=0 columns=7168
//   threads=128
#include "moejit_device/cast/two_level_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 0;         // all rows are real
constexpr int32_t kMatrixRows = 0;     // rows are no matrices
constexpr int32_t kColumns = 7168;     // of a row
constexpr bool kCastsRows = true;      // a scale for 16 columns of a row
constexpr bool kCastsColumns = false;  // a scale for 16 rows of a column
constexpr int32_t kThreads = 128;      // per CTA, 32 for each stripe of 16 rows

using Kernel = TwoLevelCast<kGroups, kMatrixRows, kColumns, StripesInOrder<kColumns>, ScalesOfLines,
                            StoreTwoLevelCodes, kCastsRows, kCastsColumns, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_two_level_quantize_bf16_e2m1_16x128_b63137d0, TwoLevelCastParams) {
  Kernel::run(params);
}
