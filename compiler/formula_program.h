// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace moejit::compiler {

// Runs moejit-formula, which has LLVM, and waits for it. `program` is its file. `options` are among
// --check, --ir and --json. Returns what it prints. Errors: kUnsupported, the file is not there;
// kCheckFailed, a part is wrong, with what it prints as detail; kCompilerFault.
Result<std::string> run_formula_program(const std::filesystem::path& program,
                                        std::string_view formula,
                                        std::span<const std::string> options);

}  // namespace moejit::compiler
