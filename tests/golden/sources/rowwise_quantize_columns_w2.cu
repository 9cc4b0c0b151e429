// quantize_columns_w2: bf16 matrices [7168, 2048] to e4m3 columns, with their known scales
// group_columns pass=cast source=in_order local_experts=8 columns=2048 sections=1 section_rows=7168
//   threads=128
#include "moejit_device/transpose/scaled_column_cast.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;          // matrices
constexpr int32_t kColumns = 2048;      // of a row that is read
constexpr int32_t kRowBytes = 4096;     // of a row that is read
constexpr int32_t kSections = 1;        // stacked parts
constexpr int32_t kSectionRows = 7168;  // rows of each
constexpr int32_t kThreads = 128;       // per CTA, 64 for each half of a tile

using Kernel = ScaledColumnCast<MatrixRows<kGroups, kSections, kSectionRows>, kColumns,
                                RowsInOrder<kRowBytes>, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_quantize_columns_w2_bf16_e4m3_128x64_1a52e940, TransposeParams) {
  Kernel::run(params);
}
