// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/torch_layers.h"
#include "compiler/support/file.h"
#include "runtime/checkpoint/safetensors_file.h"

#include <array>
#include <fmt/ranges.h>
#include <string_view>
#include <utility>

namespace moejit::cli {
namespace {

// Replaces the library's option names, which are field names, by the command line's option names.
Error name_options(Error error) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOptions = {
      {{"option expert_parallel:", "--expert-parallel (--ep):"},
       {"option max_tokens:", "--max-tokens:"}}};
  for (const auto& [field, option] : kOptions)
    if (error.message.starts_with(field)) error.message.replace(0, field.size(), option);
  return error;
}

Result<compiler::Recipe> recipe_of(const LayerCommand& command) {
  const auto recipe = compiler::find_recipe(command.recipe);
  if (recipe && recipe->has_history && !command.made_for.empty())
    return fail(Stage::kCommand, ErrorCode::kUnsupported,
                fmt::format("--recipe {} has a state from step to step, which models of "
                            "transformers do not keep",
                            command.recipe),
                "fp8_current has scales of the step itself");
  if (recipe) return *recipe;
  std::vector<std::string_view> names;
  for (const compiler::Recipe& known : compiler::kRecipes) names.push_back(to_string(known));
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("--recipe is {}, wanted one of {}", quote_for_message(command.recipe),
                          fmt::join(names, ", ")));
}

Result<compiler::Layer> layer_from_config(const LayerCommand& command, const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Recipe recipe, recipe_of(command));
  const compiler::HuggingFaceOptions options{.expert_parallel = command.expert_parallel,
                                             .max_tokens = command.max_tokens,
                                             .recipe = recipe};
  MOEJIT_TRY_ASSIGN(compiler::HuggingFaceLayer made,
                    read_configuration(command.from_hugging_face, options).map_error(name_options));
  terminal.note("model_type " + made.model_type + ", used keys:");
  for (const std::string& key : made.used_keys) terminal.note("  " + key);
  for (const std::string& text_of_note : made.notes) terminal.note("note: " + text_of_note);
  return std::move(made.layer);
}

// Returns the layers of moejit.torch as one JSON list, which moejit build takes.
Result<std::string> list_for_torch(const LayerCommand& command, const compiler::Layer& base) {
  MOEJIT_TRY_ASSIGN(const std::vector<compiler::Layer> layers,
                    layers_for_torch(base, command.max_tokens));
  std::vector<std::string> texts;
  for (const compiler::Layer& layer : layers) texts.push_back(compiler::to_json(layer));
  for (std::string& text : texts)
    while (text.ends_with('\n')) text.pop_back();
  return fmt::format("[\n{}\n]\n", fmt::join(texts, ",\n"));
}

}  // namespace

Result<void> run_layer(const LayerCommand& command, Terminal& terminal) {
  if (command.file.empty() == command.from_hugging_face.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted either a layer description or --from-hf CONFIG",
                "moejit layer LAYER.json, or moejit layer --from-hf config.json");
  if (!command.made_for.empty() && command.from_hugging_face.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "--for torch wants a model's configuration, not a layer description",
                "moejit layer --from-hf config.json --for torch");
  if (!command.output.empty()) MOEJIT_TRY(checkpoint::check_writable(command.output));
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, command.file.empty()
                                                     ? layer_from_config(command, terminal)
                                                     : read_layer(command.file));
  std::string json = compiler::to_json(layer);
  if (!command.made_for.empty()) {
    MOEJIT_TRY_ASSIGN(json, list_for_torch(command, layer));
  }
  if (!command.output.empty()) return write_file(command.output, json);
  terminal.print(json);
  return {};
}

}  // namespace moejit::cli
