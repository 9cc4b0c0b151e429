// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <dlpack/dlpack.h>
#include <string>

namespace moejit::bindings {

// Returns the dtype as DLPack 1.1 numbers it, even if the included header is older.
DLDataType dl_data_type(compiler::DType dtype);

// Returns whether a tensor of dtype `given` may stand for one of dtype `wanted`. Equal dtypes do.
// An integer of the same bits does if frameworks often lack the wanted dtype.
bool stands_for(DLDataType given, compiler::DType wanted);

// Returns the name for errors: "float32", "bfloat16", "uint8x4".
std::string to_string(DLDataType dtype);

}  // namespace moejit::bindings
