// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// The machine code of one kernel as text (SASS), one line per instruction.
struct KernelDisassembly {
  std::string entry;
  std::string text;
};

// Returns the kernels of a cubin in file order. nvdisasm or cuobjdump of a CUDA toolkit
// disassembles them in a process of its own (docs/environment.md says where it is looked for).
// Errors: kCompilerMissing if there is none; kCompileFailed with the tool's output in `detail`.
Result<std::vector<KernelDisassembly>> disassemble(std::span<const std::byte> cubin);

// Returns the disassembler's path, for people. Error kCompilerMissing.
Result<std::string> disassembler_description();

// Number of times that each instruction occurs in a disassembly, under its mnemonic without
// modifiers: "QGMMA", "LDL", ... Labels, directives and encodings do not count.
using InstructionCounts = std::map<std::string, int64_t, std::less<>>;
InstructionCounts count_instructions(std::string_view disassembly);

// Splits the output of `nvdisasm -c` or `cuobjdump -sass` into a text for each kernel, in order.
std::vector<KernelDisassembly> split_disassembly(std::string_view output);

}  // namespace moejit::compiler
