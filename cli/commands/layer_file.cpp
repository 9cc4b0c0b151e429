// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_file.h"

#include "cli/terminal/shell_word.h"
#include "compiler/support/file.h"

#include <filesystem>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigurationName = "config.json";  // in the folder of a downloaded model

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

Result<compiler::Layer> read_layer(const std::string& path) {
  if (is_folder(path)) {
    const bool is_model = is_file(fs::path(path) / kConfigurationName);
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("{} is a folder, wanted the file of a layer description", path),
                is_model ? fmt::format("moejit layer --from-hf {} makes a description of the model "
                                       "in it",
                                       shell_word(path))
                         : std::string());
  }
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path, compiler::kMaxDescriptionBytes));
  return compiler::parse_layer(text, path);
}

Result<compiler::HuggingFaceLayer> read_configuration(const std::string& path,
                                                      const compiler::HuggingFaceOptions& options) {
  std::string file = path;
  if (is_folder(path)) {
    file = (fs::path(path) / kConfigurationName).string();
    if (!is_file(file))
      return fail(Stage::kFile, ErrorCode::kFileNotFound,
                  fmt::format("{} is a folder without {}", path, kConfigurationName),
                  "wanted config.json of a model, or the folder that it is in");
  }
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(file, compiler::kMaxConfigurationBytes));
  return compiler::layer_from_hugging_face(text, file, options);
}

Result<compiler::Plan> read_plan(const std::string& path, const std::string& target,
                                 const compiler::PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(path));
  return compiler::plan_layer(layer, parsed, options);
}

}  // namespace moejit::cli
