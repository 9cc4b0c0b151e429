// SPDX-License-Identifier: Apache-2.0
// Makes layer descriptions.
#include "cli/commands/layer_commands.h"
#include "cli/commands/layer_file.h"
#include "compiler/support/file.h"
#include "runtime/checkpoint/safetensors_file.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::cli {
namespace {

using compiler::Layer;
using Fields = nlohmann::ordered_json;

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

Result<Layer> layer_from_config(const LayerCommand& command, const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Recipe recipe, recipe_of(command));
  const compiler::HuggingFaceOptions options{.expert_parallel = command.expert_parallel,
                                             .max_tokens = command.max_tokens,
                                             .recipe = recipe};
  MOEJIT_TRY_ASSIGN(compiler::HuggingFaceLayer made,
                    read_configuration(command.from_hugging_face, options).map_error(name_options));
  if (command.router && !made.router) return tl::unexpected(made.router.error());
  if (command.shared && !made.shared) return tl::unexpected(made.shared.error());
  if (command.shared && made.shared->experts == 0)
    return fail(Stage::kCommand, ErrorCode::kUnsupported,
                fmt::format("--shared: {} has no shared experts", made.model_type),
                "leave --shared out");
  terminal.note("model_type " + made.model_type + ", used keys:");
  for (const std::string& key : made.used_keys) terminal.note("  " + key);
  for (const std::string& text_of_note : made.notes) terminal.note("note: " + text_of_note);
  if (!command.router && !command.shared) return std::move(made.layer);
  Fields fields = Fields::parse(to_json_without_padding(made.layer));
  if (command.shared) fields["shared"] = Fields::parse(to_json(*made.shared));
  if (command.router) fields["router"] = Fields::parse(to_json(*made.router));
  // The router chooses of all experts, whichever are on this rank.
  if (command.router && made.layer.local_experts < made.layer.experts)
    fields["foreign_experts"] = "ignore";
  return compiler::parse_layer(
      fields.dump(),
      command.from_hugging_face + (command.router ? " with a router" : " with shared experts"));
}

constexpr int64_t kFewestMaxTokens = 16;

// Returns the fields that all calls of the model have in common.
Fields common_fields(const Layer& base) {
  Fields fields = Fields::parse(to_json_without_padding(base));
  fields["experts"] = std::max(base.local_experts, base.top_k);
  fields["dispatch"] = "none";
  fields["topk_ids_dtype"] = "i64";
  return fields;
}

// Returns the gradients of tokens and probabilities that autograd may want. If nothing below the
// layer is trained, autograd wants no gradient of tokens. If the router is frozen too, it wants no
// gradient of probabilities.
std::vector<std::vector<std::string>> gradients_of_inputs() {
  return {{}, {"dx"}, {"dprobs"}, {"dx", "dprobs"}};
}

// Returns the gradients of weights and biases that are trained. Lists with only some of the biases
// need no other kernels.
std::vector<std::vector<std::string>> trained_weights(bool has_biases) {
  std::vector<std::vector<std::string>> lists = {{}, {"dw1"}, {"dw2"}, {"dw1", "dw2"}};
  if (has_biases) lists.push_back({"dw1", "dw2", "db1", "db2"});
  return lists;
}

// Adds the layers of calls that keep quantized weights and of calls that do not.
Result<void> add(Fields fields, std::vector<Layer>& layers) {
  for (const bool keeps : {false, true}) {
    fields["weight_checks"] = keeps;
    MOEJIT_TRY_ASSIGN(Layer layer, compiler::parse_layer(fields.dump(), "layer"));
    layers.push_back(std::move(layer));
  }
  return {};
}

// Adds the layers of calls of one size, with probabilities in one type.
Result<void> add_calls(Fields fields, std::vector<Layer>& layers) {
  fields["passes"] = {"forward"};
  MOEJIT_TRY(add(fields, layers));
  fields["passes"] = {"forward", "backward"};
  for (const std::vector<std::string>& weights : trained_weights(fields["biases"]))
    for (const std::vector<std::string>& inputs : gradients_of_inputs()) {
      std::vector<std::string> gradients = inputs;
      gradients.insert(gradients.end(), weights.begin(), weights.end());
      if (gradients.empty()) continue;  // the call without gradients above
      fields["gradients"] = gradients;
      for (const char* dtype : {"f32", "bf16"}) {
        fields["wgrad_dtype"] = dtype;
        MOEJIT_TRY(add(fields, layers));
        if (weights.empty()) break;
      }
    }
  return {};
}

// Returns the layers that the experts of a transformers model ask for with moejit.torch, in calls
// of at most `tokens` tokens. There are layers for each power of two from 16 on, without gradients
// and with any that autograd may want. Probabilities and gradients of weights come in either type.
// moejit/torch/ahead.py has the same list for a model in memory; tests/torch/ahead_test.py compares
// the two with what calls ask for. Errors: all of parse_layer() for `base` with these fields.
Result<std::vector<Layer>> layers_for_torch(const Layer& base, int64_t tokens) {
  Fields fields = common_fields(base);
  std::vector<Layer> layers;
  for (int64_t size = kFewestMaxTokens;; size *= 2) {
    fields["max_tokens"] = size;
    // Under expert parallelism transformers hands each rank ids of its own experts, and larger ones
    // for the others. Versions before 5.18 do not say whether they do this, so both kinds of layers
    // are listed.
    for (const char* foreign : {"report", "ignore"})
      for (const char* dtype : {"f32", "bf16"}) {
        fields["foreign_experts"] = foreign;
        fields["topk_probs_dtype"] = dtype;
        MOEJIT_TRY(add_calls(fields, layers));
      }
    if (size >= tokens) return layers;
  }
}

// Returns the layers of moejit.torch as one JSON list, which moejit build takes.
Result<std::string> list_for_torch(const LayerCommand& command, const Layer& base) {
  MOEJIT_TRY_ASSIGN(const std::vector<Layer> layers, layers_for_torch(base, command.max_tokens));
  std::vector<std::string> texts;
  for (const Layer& layer : layers) texts.push_back(compiler::to_json(layer));
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
  MOEJIT_TRY_ASSIGN(const Layer layer, command.file.empty() ? layer_from_config(command, terminal)
                                                            : read_layer(command.file));
  std::string json =
      command.file.empty() ? compiler::to_json_without_padding(layer) : compiler::to_json(layer);
  if (!command.made_for.empty()) {
    MOEJIT_TRY_ASSIGN(json, list_for_torch(command, layer));
  }
  if (!command.output.empty()) return write_file(command.output, json);
  terminal.print(json);
  return {};
}

}  // namespace moejit::cli
