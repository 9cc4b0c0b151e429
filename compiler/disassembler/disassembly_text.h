// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/disassembly.h"

#include <string_view>
#include <vector>

namespace moejit::compiler {

// Takes apart what `nvdisasm -c` or `cuobjdump -sass` printed: a text for each kernel, in order.
std::vector<KernelDisassembly> split_disassembly(std::string_view output);

}  // namespace moejit::compiler
