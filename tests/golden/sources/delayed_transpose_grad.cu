// transpose_grad: e5m2 rows [P, 7168] to columns of their experts, byte for byte
// transpose format=F8_E5M2 rule=keep_bytes local_experts=8 columns=7168 counts_flushed=false
//   threads=128
#include "moejit_device/transpose/transpose.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 7168;  // of a row that is read
constexpr int32_t kThreads = 128;   // per CTA, 64 for each tile

using Kernel = Transpose<kGroups, kColumns, RowsInOrder<kColumns>, KeepBytes, IgnoreFlushed,
                         kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm,
              moejit_transpose_grad_e5m2_e5m2_128x128_ce7dde33, TransposeParams) {
  Kernel::run(params);
}
