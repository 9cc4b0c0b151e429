// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <map>

namespace moejit::compiler {
namespace {

// Functions of the transformers library (ACT2FN) as formulas of #, and the presets that they make
// with a gate and without.
struct HiddenAct {
  std::string_view name;
  std::string_view formula;
  std::string_view gated_preset = {};
  std::string_view ungated_preset = {};
};
constexpr std::array kHiddenActs = std::to_array<HiddenAct>({
    {"silu", "silu(#)", "swiglu"},
    {"swish", "silu(#)", "swiglu"},
    {"gelu", "gelu(#)", "geglu"},
    {"gelu_python", "gelu(#)", "geglu"},
    {"quick_gelu", "quick_gelu(#)", "quick_geglu"},
    {"gelu_pytorch_tanh", "gelu_tanh(#)"},
    {"gelu_python_tanh", "gelu_tanh(#)"},
    {"gelu_new", "gelu_tanh(#)"},
    {"gelu_fast", "gelu_tanh(#)"},
    {"gelu_accurate", "gelu_tanh(#)"},
    {"relu", "relu(#)"},
    {"relu2", "(relu(#) * relu(#))", "", "relu_squared"},
    {"relu6", "clamp(#, 0, 6)"},
    {"leaky_relu", "where(# < 0, 0.01 * #, #)"},
    {"sigmoid", "sigmoid(#)"},
    {"tanh", "tanh(#)"},
    {"linear", "#"},
});

std::string formula_of(const HiddenAct& act, std::string_view operand) {
  std::string formula;
  for (const char c : act.formula) {
    if (c == '#')
      formula += operand;
    else
      formula += c;
  }
  return formula;
}

struct ChosenAct {
  const HiddenAct* act;
  std::optional<JsonView> view;  // the value that named it
};

Result<ChosenAct> read_act(const HuggingFaceSource& source, const FigureReader& reader) {
  const HuggingFaceFamily& family = source.family;
  std::optional<JsonView> view;
  if (!family.activation.empty()) view = reader.find(family.activation);
  // DBRX has {"name": "silu"}.
  if (view && view->value().kind == JsonKind::kObject) {
    MOEJIT_TRY_ASSIGN(view, view->at("name"));
  }
  std::string name(family.default_activation);
  if (view) {
    MOEJIT_TRY_ASSIGN(name, view->read_string());
  }
  const auto known = std::ranges::find(kHiddenActs, name, &HiddenAct::name);
  // Some models with relu2 have a gate, some have none.
  const bool is_ambiguous = !source.is_known && name == "relu2";
  if (known != kHiddenActs.end() && !is_ambiguous) return ChosenAct{&*known, view};
  std::vector<std::string_view> names;
  for (const HiddenAct& act : kHiddenActs) names.push_back(act.name);
  if (!view) return ChosenAct{kHiddenActs.data(), view};
  return view->fail(
      ErrorCode::kUnsupported, fmt::format("got {}, not supported", view->got()),
      fmt::format("supported: {}; of another formula {}", fmt::join(names, ", "), kWriteByHand));
}

Result<double> read_positive_number(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const double number, view.read_number());
  if (number > 0.0) return number;
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format("got {}, wanted a number above 0", view.got()));
}

// A number of the formula, and the key that gave it.
struct FormulaNumber {
  double value = 0.0;
  std::optional<JsonView> view;
};

// Reads a number. If the key is absent, takes the default and notes it: the description then has a
// number that the file does not have.
Result<FormulaNumber> read_number(const HuggingFaceSource& source, FigureReader& reader,
                                  std::string_view key, double default_value) {
  const std::optional<JsonView> view = reader.find(key);
  if (view) {
    MOEJIT_TRY_ASSIGN(const double value, read_positive_number(*view));
    return FormulaNumber{value, view};
  }
  reader.note(fmt::format("{} is not given: {} is taken, as {} has it by default", key,
                          default_value, source.model_type));
  return FormulaNumber{default_value, std::nullopt};
}

// Notes every given key. Each note says what the whole activation became.
void note_activation(FigureReader& reader, const Activation& activation,
                     std::initializer_list<std::optional<JsonView>> views) {
  for (const std::optional<JsonView>& view : views)
    if (view) reader.note_use(*view, "activation", to_string(activation));
}

Result<Activation> clamped_gate(const HiddenAct& act, double limit) {
  if (act.gated_preset == "swiglu")
    return make_activation("clamped_swiglu", std::array{ActivationParameter{"limit", limit},
                                                        ActivationParameter{"alpha", 1.0},
                                                        ActivationParameter{"offset", 0.0}});
  const std::string gate = fmt::format("min(gate, {})", limit);
  return parse_activation(
      fmt::format("{} * clamp(up, -{}, {})", formula_of(act, gate), limit, limit));
}

Result<Activation> plain(const HiddenAct& act, bool has_gate) {
  const std::string_view preset = has_gate ? act.gated_preset : act.ungated_preset;
  if (!preset.empty()) return make_activation(preset);
  return parse_activation(has_gate ? formula_of(act, "gate") + " * up" : formula_of(act, "up"));
}

Result<Activation> read_clamped_with_offset(const HuggingFaceSource& source, FigureReader& reader) {
  constexpr double kAlpha = 1.702;  // the default of the preset and of the models that have the key
  MOEJIT_TRY_ASSIGN(const FormulaNumber limit,
                    read_number(source, reader, "swiglu_limit", source.family.limit));
  MOEJIT_TRY_ASSIGN(const FormulaNumber alpha, read_number(source, reader, "swiglu_alpha", kAlpha));
  MOEJIT_TRY_ASSIGN(
      const Activation activation,
      make_activation("clamped_swiglu", std::array{ActivationParameter{"limit", limit.value},
                                                   ActivationParameter{"alpha", alpha.value}}));
  note_activation(reader, activation, {limit.view, alpha.view});
  return activation;
}

Result<Activation> read_clamped_gate(const HuggingFaceSource& source, FigureReader& reader) {
  MOEJIT_TRY_ASSIGN(const ChosenAct chosen, read_act(source, reader));
  MOEJIT_TRY_ASSIGN(const FormulaNumber limit,
                    read_number(source, reader, "swiglu_limit", source.family.limit));
  MOEJIT_TRY_ASSIGN(const Activation activation, clamped_gate(*chosen.act, limit.value));
  note_activation(reader, activation, {chosen.view, limit.view});
  return activation;
}

Result<Activation> read_softcapped(const HuggingFaceSource& source, FigureReader& reader) {
  constexpr double kGateCap = 4.0;  // defaults of the configuration class of inkling2
  constexpr double kUpCap = 25.0;
  MOEJIT_TRY_ASSIGN(const FormulaNumber gate,
                    read_number(source, reader, "mlp_gate_softcap", kGateCap));
  MOEJIT_TRY_ASSIGN(const FormulaNumber up, read_number(source, reader, "mlp_up_softcap", kUpCap));
  MOEJIT_TRY_ASSIGN(const Activation activation,
                    parse_activation(fmt::format(
                        "tanh(gate / {0}) * {0} * sigmoid(gate) * (tanh(up / {1}) * {1})",
                        gate.value, up.value)));
  note_activation(reader, activation, {gate.view, up.view});
  return activation;
}

// Reads a list with a limit for each decoder layer, 0 or null if there is none. Returns the limit
// of most layers, and notes the others.
Result<double> read_limit_of_most(const JsonView& view, FigureReader& reader) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> layers, view.read_array());
  std::map<double, int> counts;
  for (const JsonView& layer : layers) {
    double limit = 0.0;
    if (!layer.is_null()) {
      MOEJIT_TRY_ASSIGN(limit, layer.read_number());
    }
    if (limit < 0.0)
      return layer.fail(ErrorCode::kInvalidValue,
                        fmt::format("got {}, wanted a number from 0", layer.got()));
    ++counts[limit];
  }
  const auto most = std::ranges::max_element(
      counts, {}, [](const std::pair<const double, int>& entry) { return entry.second; });
  if (most == counts.end()) return 0.0;
  for (const auto& [limit, count] : counts)
    if (limit != most->first)
      reader.note(
          fmt::format("{}: {} of {} decoder layers have the limit {}, this describes those "
                      "with {} (0: none)",
                      short_path(view), count, layers.size(), limit, most->first));
  return most->first;
}

Result<Activation> read_clamped_activation(const HuggingFaceSource& source, FigureReader& reader) {
  MOEJIT_TRY_ASSIGN(const ChosenAct chosen, read_act(source, reader));
  double limit = 0.0;
  const std::optional<JsonView> limits = reader.find("swiglu_limits");
  if (limits) {
    MOEJIT_TRY_ASSIGN(limit, read_limit_of_most(*limits, reader));
  }
  const std::string formula = fmt::format("min({}, {}) * clamp(up, -{}, {})",
                                          formula_of(*chosen.act, "gate"), limit, limit, limit);
  MOEJIT_TRY_ASSIGN(const Activation activation,
                    limit == 0.0 ? plain(*chosen.act, true) : parse_activation(formula));
  note_activation(reader, activation, {chosen.view, limits});
  return activation;
}

Result<Activation> read_plain(const HuggingFaceSource& source, FigureReader& reader) {
  MOEJIT_TRY_ASSIGN(const ChosenAct chosen, read_act(source, reader));
  MOEJIT_TRY_ASSIGN(const Activation activation,
                    plain(*chosen.act, source.family.formula == ExpertFormula::kGated));
  note_activation(reader, activation, {chosen.view});
  if (!chosen.view && !source.is_known) reader.note("no key names the activation: silu is assumed");
  return activation;
}

Result<Activation> read_formula(const HuggingFaceSource& source, FigureReader& reader) {
  switch (source.family.formula) {
    case ExpertFormula::kClampedWithOffset: return read_clamped_with_offset(source, reader);
    case ExpertFormula::kClampedGate: return read_clamped_gate(source, reader);
    case ExpertFormula::kClampedActivation: return read_clamped_activation(source, reader);
    case ExpertFormula::kSoftcapped: return read_softcapped(source, reader);
    case ExpertFormula::kGated:
    case ExpertFormula::kUngated: break;
  }
  return read_plain(source, reader);
}

bool changes_the_formula(const JsonView& view) {
  const JsonValue& value = view.value();
  if (value.kind == JsonKind::kBoolean) return value.boolean;
  return value.kind != JsonKind::kArray || !value.elements.empty();
}

}  // namespace

Result<Activation> read_hugging_face_activation(const HuggingFaceSource& source,
                                                FigureReader& reader) {
  MOEJIT_TRY_ASSIGN(Activation activation, read_formula(source, reader));
  for (const std::string_view key : expert_formula_keys()) {
    const std::optional<JsonView> view = reader.find(key);
    if (!view || reader.has_read(key) || !changes_the_formula(*view)) continue;
    if (!source.is_known)
      return view->fail(
          ErrorCode::kUnsupported,
          fmt::format("got {}, which may change what experts compute, of a family that is not "
                      "known",
                      view->got()),
          std::string(kWriteByHand));
    reader.note(fmt::format("{} = {}: not read, since experts of {} do not have it",
                            short_path(*view), view->got(), source.model_type));
  }
  return activation;
}

}  // namespace moejit::compiler
