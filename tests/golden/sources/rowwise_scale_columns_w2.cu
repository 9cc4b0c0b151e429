// scale_columns_w2: bf16 matrices [7168, 2048] to one power-of-two scale for each column of a
//   matrix
// group_columns pass=scales source=in_order local_experts=8 columns=2048 sections=1
//   section_rows=7168 epsilon=1e-12 threads=256
#include "moejit_device/transpose/group_column_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;                  // matrices
constexpr int32_t kColumns = 2048;              // of a row that is read
constexpr int32_t kRowBytes = 4096;             // of a row that is read
constexpr int32_t kSections = 1;                // stacked parts
constexpr int32_t kSectionRows = 7168;          // rows of each
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA

using Kernel = GroupColumnScales<MatrixRows<kGroups, kSections, kSectionRows>, kColumns,
                                 RowsInOrder<kRowBytes>, kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_columns_w2_bf16_f32_64_0f80cd30,
              TransposeParams) {
  Kernel::run(params);
}
