// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "compiler/support/file.h"
#include "compiler/support/nearest_name.h"

#include <filesystem>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

struct EmittedFile {
  std::string operation;
  std::string text;
};

tl::unexpected<Error> unknown_operation(const compiler::Plan& plan, const std::string& name) {
  std::vector<std::string_view> known;
  std::string list;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    known.push_back(kernel.operation);
    list += (list.empty() ? "" : ", ") + kernel.operation;
  }
  const std::string_view nearest = nearest_name(name, known);
  return fail(Stage::kCommand, ErrorCode::kInvalidValue,
              fmt::format("--operation \"{}\" is not in the plan, which has {}", name, list),
              nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
}

Result<std::vector<EmittedFile>> emit_files(const compiler::Plan& plan,
                                            const std::string& operation) {
  std::vector<EmittedFile> files;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    if (!operation.empty() && kernel.operation != operation) continue;
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, compiler::emit_kernel(kernel, plan.target));
    files.push_back({kernel.operation, std::move(source.text)});
  }
  if (files.empty()) return unknown_operation(plan, operation);
  return files;
}

}  // namespace

Result<void> run_emit(const EmitCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(command.layer, command.target));
  MOEJIT_TRY_ASSIGN(const std::vector<EmittedFile> files, emit_files(plan, command.operation));
  if (command.output_dir.empty()) {
    for (const EmittedFile& file : files) terminal.print(file.text);
    return {};
  }
  std::error_code error;
  std::filesystem::create_directories(command.output_dir, error);
  if (error)
    return fail(Stage::kFile, ErrorCode::kFileWrite,
                fmt::format("cannot make the folder {}: {}", command.output_dir, error.message()));
  for (const EmittedFile& file : files) {
    const std::string path =
        (std::filesystem::path(command.output_dir) / (file.operation + ".cu")).string();
    MOEJIT_TRY(write_file(path, file.text));
    terminal.print(path + "\n");
  }
  return {};
}

}  // namespace moejit::cli
