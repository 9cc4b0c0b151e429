// permute_transpose_grad: e4m3 rows [T, 7168] with 1x128 scales to columns of their experts with
//   128x128 scales, rounded to nearest even
// transpose format=F8_E4M3 rule=ideal source=gathered_all local_experts=8 columns=7168
//   counts_flushed=false threads=128
#include "moejit_device/transpose/transpose.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 7168;  // of a row that is read
constexpr int32_t kThreads = 128;   // per CTA, 64 for each tile

using Kernel = Transpose<kGroups, kColumns, GatheredRowsOfAll<kColumns>, IdealRescale<E4m3>,
                         IgnoreFlushed, kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_permute_transpose_grad_e4m3_e4m3_128x128_c7764dce, TransposeParams) {
  Kernel::run(params);
}
