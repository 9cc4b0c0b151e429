// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <dlpack/dlpack.h>
#include <string>

namespace moejit::bindings {

// The dtype in DLPack's words: those of DLPack 1.1, which may be newer than the header.
DLDataType dl_data_type(compiler::DType dtype);

// Whether a tensor of `given` may stand for one of `wanted`: the same, or where frameworks often
// lack it, an integer of the same bits.
bool stands_for(DLDataType given, compiler::DType wanted);

// For errors: "float32", "bfloat16", "uint8x4".
std::string to_string(DLDataType dtype);

}  // namespace moejit::bindings
