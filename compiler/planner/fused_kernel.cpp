// SPDX-License-Identifier: Apache-2.0
#include "compiler/fused_kernel.h"

namespace moejit::compiler {
namespace {

struct FusedKernel {
  std::string_view entry;  // the beginning of the entry
  std::string_view field;
};
constexpr FusedKernel kFusedKernels[] = {
    {"moejit_gemm_fc1_activation_quantize_", "fuse_activation"},
    {"moejit_permute_transpose_x_", "fuse_transpose"},
    {"moejit_permute_transpose_grad_", "fuse_transpose"},
    {"moejit_quantize_permute_transpose_grad_", "fuse_transpose"},
    {"moejit_permute_quantize_columns_x_", "fuse_transpose"},
    {"moejit_permute_quantize_columns_grad_", "fuse_transpose"},
    {"moejit_permute_scale_columns_x_", "fuse_transpose"},
    {"moejit_permute_scale_columns_grad_", "fuse_transpose"},
    {"moejit_activation_backward_quantize_transpose_", "fuse_activation_transpose"},
    {"moejit_activation_backward_amax_", "fuse_activation_transpose"},
    {"moejit_activation_backward_quantize_both_", "fuse_activation_transpose"},
};

}  // namespace

std::string_view field_that_fuses(std::string_view entry) {
  for (const FusedKernel& kernel : kFusedKernels)
    if (entry.starts_with(kernel.entry)) return kernel.field;
  return {};
}

}  // namespace moejit::compiler
