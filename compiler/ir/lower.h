// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"
#include "compiler/ir/formula_ir.h"

#include <llvm/IR/Module.h>
#include <memory>
#include <string>
#include <vector>

namespace moejit::ir {

inline constexpr const char* kEntry = "formula";

// Returns a module with `void formula(const T* variables, T* results)`, not verified.
std::unique_ptr<llvm::Module> lower(const compiler::StraightLine& code,
                                    const std::vector<std::string>& variables, Number number,
                                    llvm::LLVMContext& context);

}  // namespace moejit::ir
