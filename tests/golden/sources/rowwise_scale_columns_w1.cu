// scale_columns_w1: bf16 matrices [4096, 7168] to one power-of-two scale for each column of a
//   matrix
// group_columns pass=scales source=in_order local_experts=8 columns=7168 sections=2
//   section_rows=2048 epsilon=1e-12 threads=256
#include "moejit_device/transpose/group_column_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;                  // matrices
constexpr int32_t kColumns = 7168;              // of a row that is read
constexpr int32_t kRowBytes = 14336;            // of a row that is read
constexpr int32_t kSections = 2;                // stacked parts
constexpr int32_t kSectionRows = 2048;          // rows of each
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA

using Kernel = GroupColumnScales<MatrixRows<kGroups, kSections, kSectionRows>, kColumns,
                                 RowsInOrder<kRowBytes>, kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_columns_w1_bf16_f32_64_81a2bba2,
              TransposeParams) {
  Kernel::run(params);
}
