// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/emitter/kernel_text.h"
#include "compiler/kernels/amax_columns.h"

#include <string>

namespace moejit::compiler {

// Returns for example "3e+1".
std::string to_string(const AmaxColumns& columns);

// Returns the type with which store stages of rows record.
ComposedType recorded_amax();

// Adds the constants kAmaxStride and kAmaxFirst to the text of a kernel that records.
void add_amax_columns(KernelText& text, const AmaxColumns& columns);

}  // namespace moejit::compiler
