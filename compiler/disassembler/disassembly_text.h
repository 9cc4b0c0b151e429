// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/disassembly.h"

#include <string_view>
#include <vector>

namespace moejit::compiler {

// Splits the output of `nvdisasm -c` or `cuobjdump -sass` into a text for each kernel, in order.
std::vector<KernelDisassembly> split_disassembly(std::string_view output);

}  // namespace moejit::compiler
