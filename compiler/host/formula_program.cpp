// SPDX-License-Identifier: Apache-2.0
#include "compiler/formula_program.h"

#include "compiler/host/process.h"

#include <fmt/core.h>
#include <utility>
#include <vector>

namespace moejit::compiler {

Result<std::string> run_formula_program(const std::filesystem::path& program,
                                        std::string_view formula,
                                        std::span<const std::string> options) {
  if (!find_program(program.string()))
    return fail(Stage::kCommand, ErrorCode::kUnsupported,
                fmt::format("there is no program {}, which checks formulas", program.string()),
                "build the target moejit_formula, which is there if CMake finds LLVM 14 to 19");
  std::vector<std::string> words = {program.string(), std::string(formula)};
  words.insert(words.end(), options.begin(), options.end());
  MOEJIT_TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create());
  MOEJIT_TRY_ASSIGN(ProcessResult result, run_process(words, folder.path()));
  if (result.exit_code == 0) return std::move(result.output);
  if (result.exit_code == exit_code_of(ErrorCode::kCheckFailed))
    return fail(Stage::kCommand, ErrorCode::kCheckFailed,
                "a part of the formula is not what LLVM's code gives",
                "this is a fault of moejit: please report it with the formula", result.output);
  return fail(Stage::kCommand, ErrorCode::kCompilerFault,
              fmt::format("{} ended with status {}", program.string(), result.exit_code), {},
              result.output);
}

}  // namespace moejit::compiler
