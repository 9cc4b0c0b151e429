// transpose_act: e4m3 rows [P, 2048] to columns of their experts, byte for byte
// transpose format=F8_E4M3 rule=keep_bytes local_experts=8 columns=2048 counts_flushed=false
//   threads=128
#include "moejit_device/transpose/transpose.cuh"

using namespace moejit::device;

constexpr int32_t kGroups = 8;      // groups of rows
constexpr int32_t kColumns = 2048;  // of a row that is read
constexpr int32_t kThreads = 128;   // per CTA, 64 for each tile

using Kernel = Transpose<kGroups, kColumns, RowsInOrder<kColumns>, KeepBytes, IgnoreFlushed,
                         kThreads>;

MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_transpose_act_e4m3_e4m3_128x128_8649810d,
              TransposeParams) {
  Kernel::run(params);
}
