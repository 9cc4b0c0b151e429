// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/safetensors/write_safetensors.h"
#include "compiler/support/file.h"

#include <array>
#include <string_view>
#include <utility>

namespace moejit::cli {
namespace {

// Replaces the library's option names, which are field names, by those of the command line.
Error name_options(Error error) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOptions = {
      {{"option expert_parallel:", "--expert-parallel (--ep):"},
       {"option max_tokens:", "--max-tokens:"}}};
  for (const auto& [field, option] : kOptions)
    if (error.message.starts_with(field)) error.message.replace(0, field.size(), option);
  return error;
}

Result<compiler::Layer> layer_from_config(const LayerCommand& command, const Terminal& terminal) {
  const compiler::HuggingFaceOptions options{.expert_parallel = command.expert_parallel,
                                             .max_tokens = command.max_tokens};
  MOEJIT_TRY_ASSIGN(compiler::HuggingFaceLayer made,
                    read_configuration(command.from_hugging_face, options).map_error(name_options));
  terminal.note("model_type " + made.model_type + ", used keys:");
  for (const std::string& key : made.used_keys) terminal.note("  " + key);
  for (const std::string& text_of_note : made.notes) terminal.note("note: " + text_of_note);
  return std::move(made.layer);
}

}  // namespace

Result<void> run_layer(const LayerCommand& command, Terminal& terminal) {
  if (command.file.empty() == command.from_hugging_face.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted either a layer description or --from-hf CONFIG",
                "moejit layer LAYER.json, or moejit layer --from-hf config.json");
  if (!command.output.empty()) MOEJIT_TRY(check_writable(command.output));
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, command.file.empty()
                                                     ? layer_from_config(command, terminal)
                                                     : read_layer(command.file));
  const std::string json = compiler::to_json(layer);
  if (!command.output.empty()) return write_file(command.output, json);
  terminal.print(json);
  return {};
}

}  // namespace moejit::cli
