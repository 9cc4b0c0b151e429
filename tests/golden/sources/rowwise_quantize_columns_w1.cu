// quantize_columns_w1: bf16 matrices [4096, 7168] to e4m3 columns, with their known scales
// group_columns pass=cast source=in_order local_experts=8 columns=7168 sections=2 section_rows=2048
//   threads=128
#include "moejit_device/transpose/scaled_column_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;          // matrices
constexpr int32_t kColumns = 7168;      // of a row that is read
constexpr int32_t kRowBytes = 14336;    // of a row that is read
constexpr int32_t kSections = 2;        // stacked parts
constexpr int32_t kSectionRows = 2048;  // rows of each
constexpr int32_t kThreads = 128;       // per CTA, 64 for each half of a tile

using Kernel = ScaledColumnCast<MatrixRows<kGroups, kSections, kSectionRows>, kColumns,
                                RowsInOrder<kRowBytes>, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_columns_w1_bf16_e4m3_128x64_1004c31a, TransposeParams) {
  Kernel::run(params);
}
