// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace moejit::compiler {

// Returns the field of a layer description that, if it is false, replaces the kernel of this entry
// by other kernels: "fuse_activation" for "moejit_gemm_fc1_activation_quantize_...". Empty for
// kernels that no field takes apart.
std::string_view field_that_fuses(std::string_view entry);

}  // namespace moejit::compiler
