// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/parser/hugging_face_families.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/support/json_document.h"
#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <optional>

namespace moejit::compiler {
namespace {

constexpr std::string_view kTopKKey = "num_experts_per_tok";
constexpr std::string_view kHiddenKey = "hidden_size";
constexpr std::string_view kRouterNote =
    "router: scores, the choice of experts and their normalisation happen before the layer, which "
    "takes topk_ids and topk_probs";

const HuggingFaceFamily* find_family(const JsonView& config) {
  const std::optional<JsonView> type = config.find("model_type");
  if (!type || type->value().kind != JsonKind::kString) return nullptr;
  for (const HuggingFaceFamily& family : hugging_face_families())
    if (family.model_type == type->value().text) return &family;
  return nullptr;
}

std::string known_families() {
  std::string list;
  for (const HuggingFaceFamily& family : hugging_face_families())
    list +=
        fmt::format("{}{} ({})", list.empty() ? "known: " : ", ", family.model_type, family.models);
  return list;
}

// The object that holds the figures, and how its keys are called.
struct FamilyConfig {
  const HuggingFaceFamily* family;
  JsonView config;
};

Result<FamilyConfig> select_family(const JsonView& root) {
  MOEJIT_TRY_ASSIGN(const JsonView type, root.at("model_type"));
  MOEJIT_TRY(type.read_string());
  if (const HuggingFaceFamily* family = find_family(root)) {
    if (family->nested.empty()) return FamilyConfig{family, root};
    MOEJIT_TRY_ASSIGN(const JsonView nested, root.at(family->nested));
    MOEJIT_TRY(nested.check_object());
    return FamilyConfig{family, nested};
  }
  // Multimodal wrappers of their own type hold the language model's configuration.
  if (const std::optional<JsonView> nested = root.find("text_config"))
    if (const HuggingFaceFamily* family = find_family(*nested))
      return FamilyConfig{family, *nested};
  return type.fail(ErrorCode::kUnsupported,
                   fmt::format("got {}, not a known MoE model family", type.got()),
                   known_families());
}

// Names of activations in configurations, and what they are in experts: a preset, or a formula.
// Configurations without a name mean the first.
struct HiddenAct {
  std::string_view name;
  std::string_view preset;
  std::string_view formula;
};
constexpr std::array kHiddenActs = std::to_array<HiddenAct>({
    {"silu", "swiglu", ""},
    {"swish", "swiglu", ""},
    {"gelu", "geglu", ""},
    {"quick_gelu", "quick_geglu", ""},
    {"gelu_pytorch_tanh", "", "gelu_tanh(gate) * up"},
    {"gelu_new", "", "gelu_tanh(gate) * up"},
    {"relu", "", "relu(gate) * up"},
    {"sigmoid", "", "sigmoid(gate) * up"},
});
constexpr std::array kHiddenActsWithoutGate = std::to_array<HiddenAct>({
    {"relu2", "relu_squared", ""},
    {"silu", "", "silu(up)"},
    {"gelu", "", "gelu(up)"},
    {"relu", "", "relu(up)"},
});

Result<Activation> activation_of(const HiddenAct& act) {
  return act.preset.empty() ? parse_activation(act.formula) : make_activation(act.preset);
}

// Reads figures and remembers which key gave what.
class KeyReader {
 public:
  explicit KeyReader(const FamilyConfig& source) : config_(source.config) {}

  Result<int32_t> read(std::string_view key, std::string_view field, const IntRange& range) {
    MOEJIT_TRY_ASSIGN(const JsonView view, find_required(key, field));
    MOEJIT_TRY_ASSIGN(const int64_t number, view.read_int(range));
    used_keys.push_back(fmt::format("{} -> {} = {}", view.path().substr(2), field, number));
    return static_cast<int32_t>(number);
  }

  Result<Activation> read_activation(const HuggingFaceFamily& family) {
    const std::span<const HiddenAct> acts =
        family.has_gate ? std::span<const HiddenAct>(kHiddenActs) : kHiddenActsWithoutGate;
    const std::optional<JsonView> view = config_.find(family.activation);
    if (!view || view->is_null()) return activation_of(acts.front());
    MOEJIT_TRY_ASSIGN(const std::string name, view->read_string());
    const auto known = std::ranges::find(acts, name, &HiddenAct::name);
    if (known == acts.end()) {
      std::string list;
      for (const HiddenAct& act : acts)
        list += fmt::format("{}{}", list.empty() ? "" : ", ", act.name);
      return view->fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view->got()),
                        fmt::format("supported: {}", list));
    }
    MOEJIT_TRY_ASSIGN(Activation activation, activation_of(*known));
    note_activation(*view, activation);
    return activation;
  }

  // clamped_swiglu with the limit under `key`, or its default where there is no such key.
  Result<Activation> read_clamped_activation(std::string_view key) {
    const std::optional<JsonView> view = config_.find(key);
    if (!view || view->is_null()) return make_activation("clamped_swiglu");
    MOEJIT_TRY_ASSIGN(const double limit, view->read_number());
    Result<Activation> activation =
        make_activation("clamped_swiglu", std::array{ActivationParameter{"limit", limit}});
    if (!activation) return view->fail(activation.error().code, activation.error().message);
    note_activation(*view, *activation);
    return activation;
  }

  std::vector<std::string> used_keys;

 private:
  void note_activation(const JsonView& view, const Activation& activation) {
    used_keys.push_back(
        fmt::format("{} -> activation = {}", view.path().substr(2), to_string(activation)));
  }

  Result<JsonView> find_required(std::string_view key, std::string_view field) const {
    Result<JsonView> view = config_.at(key);
    if (!view) view.error().hint = fmt::format("it gives the layer's {}", field);
    return view;
  }

  JsonView config_;
};

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

// How a checkpoint is quantised: `quant_method = "fp8"`.
std::string value_for_note(const JsonView& view) {
  if (const std::optional<JsonView> method = view.find("quant_method"))
    return fmt::format("quant_method {}", method->got());
  return view.got();
}

std::vector<std::string> collect_notes(const JsonView& root, const FamilyConfig& source) {
  std::vector<std::string> notes = {std::string(kRouterNote)};
  if (!source.family->note.empty()) notes.emplace_back(source.family->note);
  for (const HuggingFaceFact& fact : hugging_face_facts()) {
    std::optional<JsonView> view = source.config.find(fact.key);
    if (!view) view = root.find(fact.key);  // quantization_config stays outside of text_config
    if (!view || !is_worth_a_note(view->value(), fact.unless)) continue;
    notes.push_back(
        fmt::format("{} = {}: {}", view->path().substr(2), value_for_note(*view), fact.note));
  }
  return notes;
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

std::string make_name(std::string_view model_type, int32_t expert_parallel) {
  std::string name(model_type);
  std::replace(name.begin(), name.end(), '_', '-');
  if (expert_parallel > 1) name += fmt::format("-ep{}", expert_parallel);
  return name;
}

Result<Layer> read_figures(KeyReader& reader, const HuggingFaceFamily& family,
                           const HuggingFaceOptions& options) {
  Layer layer{.recipe = options.recipe, .max_tokens = options.max_tokens};
  layer.name = make_name(family.model_type, options.expert_parallel);
  MOEJIT_TRY_ASSIGN(layer.experts, reader.read(family.experts, "experts", kExpertsRange));
  MOEJIT_TRY_ASSIGN(layer.local_experts, local_share(layer.experts, options.expert_parallel));
  MOEJIT_TRY_ASSIGN(layer.top_k, reader.read(kTopKKey, "top_k", up_to_experts(layer.experts)));
  MOEJIT_TRY_ASSIGN(layer.hidden, reader.read(kHiddenKey, "hidden", kWidthRange));
  MOEJIT_TRY_ASSIGN(layer.intermediate,
                    reader.read(family.intermediate, "intermediate", kWidthRange));
  MOEJIT_TRY_ASSIGN(layer.activation, family.clamp.empty()
                                          ? reader.read_activation(family)
                                          : reader.read_clamped_activation(family.clamp));
  layer.gate_up_layout = family.gate_up_layout;
  layer.biases = family.biases;
  layer.dispatch = default_dispatch(layer.experts, layer.local_experts);
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  if (layer.max_permuted_rows > kMaxPermutedRows)
    return fail_option("max_tokens", options.max_tokens,
                       fmt::format("few enough that top_k = {} needs at most {} rows", layer.top_k,
                                   kMaxPermutedRows));
  return layer;
}

}  // namespace

Result<HuggingFaceLayer> layer_from_hugging_face(std::string_view config_json,
                                                 std::string_view source_name,
                                                 const HuggingFaceOptions& options) {
  if (options.max_tokens < kTokensRange.lowest || options.max_tokens > kTokensRange.highest)
    return fail_option("max_tokens", options.max_tokens, to_string(kTokensRange));
  MOEJIT_TRY_ASSIGN(const JsonDocument document,
                    parse_json(config_json, {.source_name = source_name}));
  const JsonView root(document);
  MOEJIT_TRY(root.check_object());
  MOEJIT_TRY_ASSIGN(const FamilyConfig source, select_family(root));
  KeyReader reader(source);
  MOEJIT_TRY_ASSIGN(Layer layer, read_figures(reader, *source.family, options));
  return HuggingFaceLayer{.layer = std::move(layer),
                          .model_type = std::string(source.family->model_type),
                          .used_keys = std::move(reader.used_keys),
                          .notes = collect_notes(root, source)};
}

}  // namespace moejit::compiler
