// permute_quantize_columns_grad: bf16 rows [T, 2880] to e4m3 columns of their experts, one
//   power-of-two scale for 128 tokens of a column
// column_cast source=gathered_all local_experts=8 columns=2880 epsilon=0 threads=128
#include "moejit_device/transpose/column_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;                  // groups of rows
constexpr int32_t kColumns = 2880;              // of a row that is read
constexpr int32_t kRowBytes = 5760;             // of a row that is read
constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0: the smallest amax of a scale
constexpr int32_t kThreads = 128;               // per CTA, 64 for each half of a tile

using Kernel = ColumnCast<kGroups, kColumns, GatheredRowsOfAll<kRowBytes>, kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_quantize_columns_grad_bf16_e4m3_128x128_9e6c6b0f, TransposeParams) {
  Kernel::run(params);
}
