// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_file.h"

#include "cli/terminal/output.h"
#include "compiler/support/file.h"
#include "compiler/support/json_text.h"

#include <filesystem>
#include <fmt/core.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace moejit::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxListBytes = compiler::kMaxConfigurationBytes;  // of many descriptions
constexpr int kMaxListDepth = 16;
constexpr const char* kConfigurationName = "config.json";  // in the folder of a downloaded model

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Reads all of standard input. A command may ask for it twice, so the caller keeps the result.
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

namespace {

Result<InputText> read_description(const std::string& path, int64_t max_bytes) {
  if (is_folder(path)) {
    const bool is_model = is_file(fs::path(path) / kConfigurationName);
    return fail(Stage::kFile, ErrorCode::kFileNotFound,
                fmt::format("{} is a folder, wanted the file of a layer description", path),
                is_model ? fmt::format("moejit layer --from-hf {} makes a description of the model "
                                       "in it",
                                       shell_word(path))
                         : std::string());
  }
  return read_input_text(path, max_bytes);
}

Result<Description> parse_description(const InputText& input) {
  if (compiler::describes_operation(input.text)) {
    MOEJIT_TRY_ASSIGN(auto operation, compiler::parse_operation(input.text, input.name));
    return operation;
  }
  MOEJIT_TRY_ASSIGN(compiler::Layer layer, compiler::parse_layer(input.text, input.name));
  return layer;
}

// Returns the elements of a JSON list of descriptions, or the text itself if it is no list.
std::vector<InputText> elements_of(const InputText& input) {
  const auto list = parse_json(input.text, {.max_depth = kMaxListDepth});
  if (!list || list->root.elements.empty()) return {input};
  std::vector<InputText> elements;
  for (const JsonValue& element : list->root.elements)
    elements.push_back({Json(element).dump(), fmt::format("{}[{}]", input.name, elements.size())});
  return elements;
}

}  // namespace

Result<compiler::Plan> plan_description(const Description& description,
                                        const compiler::Target& target,
                                        const compiler::PlanOptions& options) {
  if (const auto* const operation = std::get_if<compiler::OperationDescription>(&description))
    return compiler::plan_operation(*operation, target, options);
  return compiler::plan_layer(std::get<compiler::Layer>(description), target, options);
}

Result<Description> read_layer_or_operation(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const InputText input, read_description(path, compiler::kMaxDescriptionBytes));
  auto description = parse_description(input);
  const size_t first = input.text.find_first_not_of(" \t\r\n");
  if (!description && first != std::string::npos && input.text[first] == '[')
    description.error().hint = "of the commands that take a description, build alone takes a list";
  return description;
}

Result<compiler::Layer> read_layer(const std::string& path) {
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(path));
  if (auto* const layer = std::get_if<compiler::Layer>(&description)) return std::move(*layer);
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              fmt::format("{} describes an operation, and this command takes layers alone", path),
              "plan, emit, build, run, bench, inspect and cache why take operations");
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

void choose_passes(compiler::Layer& layer, std::string_view pass) {
  if (pass.empty()) return;
  std::vector<compiler::Pass> passes = {compiler::Pass::kForward};
  if (pass != "forward") passes.push_back(compiler::Pass::kBackward);
  set_passes(layer, std::move(passes));
}

tl::unexpected<Error> option_of_layers(std::string_view option,
                                       const compiler::OperationDescription& operation) {
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("{} is for layers, not for the operation {}", option, operation.name),
              fmt::format("leave {} out", option.substr(0, option.find(' '))));
}

Result<compiler::Plan> read_plan(const std::string& path, const PlanArguments& arguments) {
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(arguments.tuning));
  MOEJIT_TRY_ASSIGN(const compiler::Target target, compiler::parse_target(arguments.target));
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(path));
  if (const auto* const operation = std::get_if<compiler::OperationDescription>(&description))
    if (!arguments.pass.empty()) return option_of_layers("--pass", *operation);
  if (auto* const layer = std::get_if<compiler::Layer>(&description))
    choose_passes(*layer, arguments.pass);
  return plan_description(description, target, {.tuning = tuning.get()});
}

Result<std::vector<compiler::Plan>> read_plans(const std::string& path, const std::string& target,
                                               const compiler::PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, compiler::parse_target(target));
  MOEJIT_TRY_ASSIGN(const InputText input, read_description(path, kMaxListBytes));
  std::vector<compiler::Plan> plans;
  for (const InputText& element : elements_of(input)) {
    MOEJIT_TRY_ASSIGN(const Description description, parse_description(element));
    MOEJIT_TRY_ASSIGN(compiler::Plan plan, plan_description(description, parsed, options));
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace moejit::cli
