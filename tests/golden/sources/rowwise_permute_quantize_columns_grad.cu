// permute_quantize_columns_grad: bf16 rows [T, 7168] to e4m3 columns of their experts, with their
//   known scales
// group_columns pass=cast source=gathered_all local_experts=8 columns=7168 threads=128
#include "moejit_device/transpose/scaled_column_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;        // groups of rows
constexpr int32_t kColumns = 7168;    // of a row that is read
constexpr int32_t kRowBytes = 14336;  // of a row that is read
constexpr int32_t kThreads = 128;     // per CTA, 64 for each half of a tile

using Kernel = ScaledColumnCast<ExpertRows<kGroups>, kColumns, GatheredRowsOfAll<kRowBytes>,
                                kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_quantize_columns_grad_bf16_e4m3_128x64_610f416d, TransposeParams) {
  Kernel::run(params);
}
