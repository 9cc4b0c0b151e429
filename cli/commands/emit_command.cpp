// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "compiler/support/nearest_name.h"

#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <utility>

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

Result<void> write_files(const std::filesystem::path& folder, const std::vector<EmittedFile>& files,
                         Terminal& terminal) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail(Stage::kFile, ErrorCode::kFileWrite,
                fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  for (const EmittedFile& file : files) {
    const std::string path = (folder / (file.operation + ".cu")).string();
    MOEJIT_TRY(write_file(path, file.text));
    terminal.print(path + "\n");
  }
  return {};
}

}  // namespace

Result<void> run_emit(const EmitCommand& command, Terminal& terminal) {
  // All layers are planned before the first file is written.
  std::map<std::string, std::string> paths;  // paths of descriptions, by layer name
  std::vector<std::pair<std::string, std::vector<EmittedFile>>> layers;
  for (const std::string& path : command.layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, command.plan));
    const std::string name = name_of(plan);
    MOEJIT_TRY_ASSIGN(std::vector<EmittedFile> files, emit_files(plan, command.operation));
    if (command.layers.size() > 1 && !command.output_dir.empty() && !is_file_name(name))
      return fail(Stage::kCommand, ErrorCode::kInvalidValue,
                  fmt::format("{} describes a layer {}, wanted a name that can be that of the "
                              "folder of its sources",
                              path, quote_for_message(name)),
                  "rename it, or emit it alone");
    const auto [other, is_new] = paths.emplace(name, path);
    if (!is_new && !command.output_dir.empty())
      return fail(
          Stage::kCommand, ErrorCode::kUsage,
          fmt::format("{} and {} both describe a layer \"{}\", which names the folder of its "
                      "sources",
                      other->second, path, name),
          "emit them into folders of their own");
    layers.emplace_back(name, std::move(files));
  }
  for (const auto& [name, files] : layers) {
    if (command.output_dir.empty()) {
      for (const EmittedFile& file : files) terminal.print(file.text);
      continue;
    }
    const std::filesystem::path folder = command.output_dir;
    MOEJIT_TRY(write_files(layers.size() == 1 ? folder : folder / name, files, terminal));
  }
  return {};
}

}  // namespace moejit::cli
