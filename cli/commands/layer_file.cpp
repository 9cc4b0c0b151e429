// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_file.h"

#include "cli/terminal/shell_word.h"
#include "compiler/support/file.h"

#include <filesystem>
#include <fmt/core.h>
#include <unistd.h>
#include <vector>

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

// Once: a command may come back to it.
Result<std::string> read_standard_input() {
  std::vector<std::byte> bytes;
  if (const int error = read_all(STDIN_FILENO, compiler::kMaxConfigurationBytes, bytes); error != 0)
    return fail(Stage::kFile, ErrorCode::kFileRead,
                fmt::format("cannot read standard input: {}", errno_text(error)));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

Result<InputText> read_input_text(const std::string& path, int64_t max_bytes) {
  if (path != "-") {
    MOEJIT_TRY_ASSIGN(std::string text, read_text_file(path, max_bytes));
    return InputText{std::move(text), path};
  }
  static const Result<std::string> input = read_standard_input();
  if (!input) return tl::make_unexpected(input.error());
  return InputText{*input, "standard input"};
}

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
  MOEJIT_TRY_ASSIGN(const InputText input, read_input_text(path, compiler::kMaxDescriptionBytes));
  return compiler::parse_layer(input.text, input.name);
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
  MOEJIT_TRY_ASSIGN(const InputText input, read_input_text(file, compiler::kMaxConfigurationBytes));
  return compiler::layer_from_hugging_face(input.text, input.name, options);
}

Result<compiler::LayerPlan> read_plan(const std::string& path, const std::string& target,
                                      const compiler::PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(path));
  return compiler::plan_layer(layer, parsed, options);
}

}  // namespace moejit::cli
