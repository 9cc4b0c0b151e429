// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/launch.h"

namespace moejit::compiler {

// The call that candidates of kernels over rows are listed for: 8192 tokens, top-8 of 32 experts,
// and each expert's rows padded to a multiple of 128.
inline constexpr CallBounds kBounds{.max_tokens = 8192,
                                    .top_k = 8,
                                    .groups = 32,
                                    .splits_alignment = 128,
                                    .max_permuted_rows = 65536 + 4096};

}  // namespace moejit::compiler
