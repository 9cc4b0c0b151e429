// quantize_columns_act: bf16 rows [P, 2048] to e4m3 columns of their experts, with their known
//   scales
// group_columns pass=cast source=in_order local_experts=8 columns=2048 threads=128
#include "moejit_device/transpose/scaled_column_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;       // groups of rows
constexpr int32_t kColumns = 2048;   // of a row that is read
constexpr int32_t kRowBytes = 4096;  // of a row that is read
constexpr int32_t kThreads = 128;    // per CTA, 64 for each half of a tile

using Kernel = ScaledColumnCast<ExpertRows<kGroups>, kColumns, RowsInOrder<kRowBytes>, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_columns_act_bf16_e4m3_128x64_ef61b733, TransposeParams) {
  Kernel::run(params);
}
