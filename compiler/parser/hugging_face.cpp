// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/parser/hugging_face_figures.h"
#include "compiler/parser/hugging_face_router.h"
#include "compiler/parser/hugging_face_shared.h"
#include "compiler/parser/hugging_face_source.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/support/json_document.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <optional>

namespace moejit::compiler {
namespace {

constexpr std::string_view kRouterNote =
    "router: the layer takes topk_ids and topk_probs, which the model makes of logits";
constexpr std::string_view kLatentNote =
    "tokens are projected to this width before the experts and back behind them, outside of the "
    "layer";
constexpr std::string_view kInputNote =
    "the model multiplies an expert's input by the probability, this layer multiplies the "
    "activation's output: scale x by the caller and pass topk_probs of 1 for the model's results";
constexpr std::size_t kMaxNamePart = 64;  // of a model_type, which may be any text

bool is_worth_a_note(const JsonValue& value, std::string_view unless) {
  switch (value.kind) {
    case JsonKind::kNull: return false;
    case JsonKind::kBoolean: return value.boolean;
    case JsonKind::kNumber: {
      std::string_view number = value.text;
      if (number.ends_with(".0")) number.remove_suffix(2);
      return number != "0" && number != unless;
    }
    case JsonKind::kString: return !value.text.empty();
    case JsonKind::kArray: return !value.elements.empty();
    case JsonKind::kObject: return !value.members.empty();
  }
  return false;
}

// Returns a key's value as notes show it; for quantization_config its quant_method.
std::string value_for_note(const JsonView& view) {
  if (const std::optional<JsonView> method = view.find("quant_method"))
    return fmt::format("quant_method {}", method->got());
  return view.got();
}

// Notes the facts. Several keys may state a fact: it is noted once.
void note_facts(const JsonView& root, FigureReader& reader) {
  std::vector<std::string_view> told;
  for (const HuggingFaceFact& fact : hugging_face_facts()) {
    if (std::ranges::find(told, fact.note) != told.end()) continue;
    std::optional<JsonView> view = reader.find(fact.key);
    if (!view) view = root.find(fact.key);  // quantization_config stays outside of text_config
    if (!view || !is_worth_a_note(view->value(), fact.unless)) continue;
    told.push_back(fact.note);
    reader.note(fmt::format("{} = {}: {}", short_path(*view), value_for_note(*view), fact.note));
  }
}

// Notes mlp_layer_types, in which each decoder layer is "dense" or has experts.
void note_dense_layers(FigureReader& reader) {
  const std::optional<JsonView> view = reader.find("mlp_layer_types");
  if (!view) return;
  const std::vector<JsonValue>& layers = view->value().elements;
  const auto dense =
      std::ranges::count_if(layers, [](const JsonValue& layer) { return layer.text == "dense"; });
  if (dense > 0)
    reader.note(fmt::format("{}: {} of {} decoder layers are dense, not MoE", short_path(*view),
                            dense, layers.size()));
}

// Notes per_layer_config, if decoder layers have other figures than the ones that were read.
void note_other_layers(FigureReader& reader) {
  const std::optional<JsonView> layers = reader.find("per_layer_config");
  if (!layers) return;
  int count = 0;
  std::string_view key;
  for (const JsonMember& layer : layers->value().members)
    for (const JsonMember& figure : layer.value.members)
      if (reader.has_read(figure.key)) {
        ++count;
        key = figure.key;
      }
  if (count > 0)
    reader.note(
        fmt::format("{}: {} entries of it, such as {}, differ from what was read: this "
                    "describes the other layers",
                    short_path(*layers), count, quote_for_message(key)));
}

void note_family(const HuggingFaceSource& source, FigureReader& reader) {
  if (!source.is_known)
    reader.note(fmt::format(
        "the family {} is not known; it was read by its keys, and taken to have a gate before up, "
        "no biases, and probabilities that multiply experts' results: check the activation and "
        "these against the model's code",
        quote_for_message(source.model_type)));
  if (!source.family.note.empty()) reader.note(std::string(source.family.note));
  for (const std::string& other : source.others)
    reader.note(
        fmt::format("{} has experts too, which this description leaves out: save it as a "
                    "file of its own to describe them",
                    escape_for_message(other, 160)));
}

// Reads whether the model multiplies the experts' inputs. With one expert a token the caller can
// multiply x beforehand; with several no scaling of x has the same effect.
Result<void> read_weights_on_input(const HuggingFaceSource& source, FigureReader& reader,
                                   int32_t top_k) {
  std::optional<JsonView> place;
  for (const std::string_view key :
       {"apply_router_weight_on_input", "moe_apply_router_weight_on_input"}) {
    const std::optional<JsonView> view = reader.find(key);
    if (!view) continue;
    MOEJIT_TRY_ASSIGN(const bool is_on, view->read_bool());
    if (is_on) place = view;
  }
  if (!place && !source.family.has_weights_on_input) return {};
  if (top_k > 1)
    return place.value_or(source.config)
        .fail(ErrorCode::kUnsupported,
              fmt::format("got probabilities that multiply the input of {} experts for each token, "
                          "which a layer description cannot express",
                          top_k),
              "with one expert a token, the caller can scale x");
  reader.note(std::string(kInputNote));
  return {};
}

tl::unexpected<Error> fail_option(std::string_view name, int64_t got, std::string_view wanted) {
  return fail(Stage::kParse, ErrorCode::kInvalidValue,
              fmt::format("option {}: got {}, wanted {}", name, got, wanted));
}

Result<int32_t> local_share(int32_t experts, int32_t expert_parallel) {
  if (expert_parallel < 1 || experts % expert_parallel != 0)
    return fail_option("expert_parallel", expert_parallel,
                       fmt::format("a divisor of the {} experts", experts));
  return experts / expert_parallel;
}

// Makes a name of the letters, digits and dashes of a model_type.
std::string make_name(std::string_view model_type, int32_t expert_parallel) {
  std::string name(model_type.substr(0, kMaxNamePart));
  std::ranges::replace_if(
      name,
      [](char c) {
        return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '.');
      },
      '-');
  if (expert_parallel > 1) name += fmt::format("-ep{}", expert_parallel);
  return name;
}

Result<int32_t> read_hidden(const HuggingFaceSource& source, FigureReader& reader) {
  constexpr std::string_view kLatentKey = "moe_latent_size";
  if (const std::optional<JsonView> latent = reader.find(kLatentKey);
      latent && source.family.has_latent_tokens) {
    reader.note(fmt::format("{} = {}: {}", short_path(*latent), latent->got(), kLatentNote));
    return reader.read(std::array{kLatentKey}, "hidden", kWidthRange);
  }
  return reader.read(hidden_keys(), "hidden", kWidthRange);
}

Result<Layer> read_figures(const HuggingFaceSource& source, FigureReader& reader,
                           const HuggingFaceOptions& options) {
  const HuggingFaceFamily& family = source.family;
  Layer layer{.recipe = options.recipe, .max_tokens = options.max_tokens};
  layer.name = make_name(source.model_type, options.expert_parallel);
  MOEJIT_TRY_ASSIGN(layer.experts, reader.read(expert_count_keys(), "experts", kExpertsRange));
  MOEJIT_TRY_ASSIGN(layer.local_experts, local_share(layer.experts, options.expert_parallel));
  layer.top_k = family.top_k;
  if (family.top_k == 0) {
    MOEJIT_TRY_ASSIGN(layer.top_k,
                      reader.read(top_k_keys(), "top_k", up_to_experts(layer.experts)));
  }
  MOEJIT_TRY(read_weights_on_input(source, reader, layer.top_k));
  MOEJIT_TRY_ASSIGN(layer.hidden, read_hidden(source, reader));
  MOEJIT_TRY_ASSIGN(layer.intermediate, reader.read(family.intermediate, "intermediate",
                                                    kWidthRange, family.has_image_experts));
  MOEJIT_TRY_ASSIGN(layer.activation, read_hugging_face_activation(source, reader));
  layer.gate_up_layout = family.gate_up_layout;
  layer.biases = family.biases;
  layer.dispatch = default_dispatch(layer);
  layer.splits_alignment = usual_splits_alignment(layer);
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  if (layer.max_permuted_rows > kMaxPermutedRows)
    return fail_option("max_tokens", options.max_tokens,
                       fmt::format("few enough that top_k = {} needs at most {} rows", layer.top_k,
                                   kMaxPermutedRows));
  return layer;
}

void note_router(const Result<RouterFormula>& router, FigureReader& reader) {
  reader.note(fmt::format("{}{}{}", kRouterNote, router ? " by \"router\": " : "; none here: ",
                          router ? to_json(*router) : router.error().message));
}

void note_shared(const Result<SharedExperts>& shared, FigureReader& reader) {
  if (!shared)
    reader.note(
        fmt::format("shared: such experts cannot run in the layer; {}", shared.error().message));
  else if (shared->experts > 0)
    reader.note(
        fmt::format("shared: such experts run in the layer by \"shared\": {}", to_json(*shared)));
}

}  // namespace

Result<HuggingFaceLayer> layer_from_hugging_face(std::string_view config_json,
                                                 std::string_view source_name,
                                                 const HuggingFaceOptions& options) {
  if (options.max_tokens < kTokensRange.lowest || options.max_tokens > kTokensRange.highest)
    return fail_option("max_tokens", options.max_tokens, to_string(kTokensRange));
  MOEJIT_TRY_ASSIGN(const JsonDocument document,
                    parse_python_json(config_json, {.source_name = source_name,
                                                    .max_bytes = kMaxConfigurationBytes,
                                                    .max_values = kMaxConfigurationValues}));
  const JsonView root(document);
  MOEJIT_TRY_ASSIGN(const HuggingFaceSource source, find_hugging_face_source(root));
  FigureReader reader(source);
  note_family(source, reader);
  MOEJIT_TRY_ASSIGN(Layer layer, read_figures(source, reader, options));
  Result<RouterFormula> router = read_hugging_face_router(source, layer.experts, layer.top_k);
  note_router(router, reader);
  Result<SharedExperts> shared = read_hugging_face_shared(source, layer.intermediate);
  note_shared(shared, reader);
  note_facts(root, reader);
  note_dense_layers(reader);
  note_other_layers(reader);
  return HuggingFaceLayer{.layer = std::move(layer),
                          .router = std::move(router),
                          .shared = std::move(shared),
                          .model_type = source.model_type,
                          .used_keys = std::move(reader.used_keys),
                          .notes = std::move(reader.notes)};
}

}  // namespace moejit::compiler
