// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <dlpack/dlpack.h>
#include <string>

namespace moejit::bindings {

// Returns the dtype in DLPack's terms: those of DLPack 1.1, which may be newer than the header.
DLDataType dl_data_type(compiler::DType dtype);

// Returns whether a tensor of `given` may stand for one of `wanted`: it is the same, or an integer
// of the same bits if frameworks often lack the type.
bool stands_for(DLDataType given, compiler::DType wanted);

// Returns the name for errors: "float32", "bfloat16", "uint8x4".
std::string to_string(DLDataType dtype);

}  // namespace moejit::bindings
