// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "runtime/reference/number_formats.h"

namespace moejit::trial {

// Returns the number format of FP8 codes of this type, kF8E4M3 or kF8E5M2.
inline reference::Fp8Format fp8_format(compiler::DType dtype) {
  return dtype == compiler::DType::kF8E5M2 ? reference::Fp8Format::kE5m2
                                           : reference::Fp8Format::kE4m3;
}

}  // namespace moejit::trial
