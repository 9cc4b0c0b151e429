// permute_scale_columns_x: bf16 rows [T, 7168] to one power-of-two scale for each column of an
//   expert's rows
// group_columns pass=scales source=gathered local_experts=8 columns=7168 epsilon=1e-12 threads=256
#include "moejit_device/transpose/group_column_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;                  // groups of rows
constexpr int32_t kColumns = 7168;              // of a row that is read
constexpr int32_t kRowBytes = 14336;            // of a row that is read
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 256;               // per CTA

using Kernel = GroupColumnScales<ExpertRows<kGroups>, kColumns, GatheredRows<kRowBytes>,
                                 kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_scale_columns_x_bf16_f32_64_90be031a, TransposeParams) {
  Kernel::run(params);
}
