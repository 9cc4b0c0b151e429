// scale_columns_dh1: largest magnitudes [C / 128, 4096] of columns to one power-of-two scale for
//   each of an expert
// group_columns pass=scales source=in_order local_experts=8 columns=4096 amax_rows epsilon=1e-12
//   threads=64
#include "moejit_device/transpose/group_column_scales.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;                  // groups of rows
constexpr int32_t kColumns = 4096;              // of a row that is read
constexpr int32_t kRowBytes = 8192;             // of a row that is read
constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12: the smallest amax of a scale
constexpr int32_t kThreads = 64;                // per CTA

using Kernel = GroupColumnScales<ExpertTiles<kGroups>, kColumns, RowsInOrder<kRowBytes>,
                                 kEpsilonBits, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_columns_dh1_bf16_f32_64_b209c4f0,
              TransposeParams) {
  Kernel::run(params);
}
