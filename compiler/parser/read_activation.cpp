// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_layer_parts.h"

#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kPresetKey = "preset";
constexpr std::string_view kExpressionKey = "expression";

// Returns the formula's error with its place in the description.
tl::unexpected<Error> at_view(const JsonView& view, const Error& error) {
  return view.fail(error.code, error.message, error.hint);
}

Result<std::string_view> read_preset(const JsonView& view) {
  const std::vector<std::string_view> names = preset_names();
  if (view.value().kind == JsonKind::kString)
    if (const std::string meant = spelling_of_other_name(view.value().text); !meant.empty())
      return view.fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view.got()),
                       fmt::format("write {}; presets: {}", meant, fmt::join(names, ", ")));
  MOEJIT_TRY_ASSIGN(const std::size_t index, view.read_choice(names));
  return names[index];
}

Result<Activation> read_expression(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const std::string formula, view.read_string());
  Result<Activation> activation = parse_activation(formula);
  if (!activation) return at_view(view, activation.error());
  return activation;
}

// In an object without "preset" an unknown key is the likelier mistake, so report that first.
Result<void> check_any_key(const JsonView& object) {
  std::vector<std::string_view> known = {kPresetKey, kExpressionKey};
  for (const std::string_view preset : preset_names())
    for (const std::string_view parameter : parameter_names(preset)) known.push_back(parameter);
  return object.check_keys(known);
}

Result<Activation> read_chosen_preset(const JsonView& object) {
  if (!object.find(kPresetKey)) MOEJIT_TRY(check_any_key(object));
  MOEJIT_TRY_ASSIGN(const JsonView view, object.at(kPresetKey));
  MOEJIT_TRY_ASSIGN(const std::string_view preset, read_preset(view));
  std::vector<std::string_view> known = parameter_names(preset);
  known.push_back(kPresetKey);
  MOEJIT_TRY(object.check_keys(known));
  std::vector<ActivationParameter> chosen;
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> members, object.read_members());
  for (const JsonView& member : members) {
    if (member.key() == kPresetKey) continue;
    MOEJIT_TRY_ASSIGN(const double value, member.read_number());
    chosen.push_back({std::string(member.key()), value});
  }
  Result<Activation> activation = make_activation(preset, chosen);
  if (!activation) return at_view(object, activation.error());
  return activation;
}

}  // namespace

Result<Activation> read_activation(const JsonView& view) {
  if (view.value().kind == JsonKind::kString) {
    MOEJIT_TRY_ASSIGN(const std::string_view preset, read_preset(view));
    return make_activation(preset);
  }
  if (view.value().kind != JsonKind::kObject)
    return view.fail(
        ErrorCode::kWrongType,
        fmt::format("got {}, wanted the name of a preset, or an object with \"preset\" or "
                    "\"expression\"",
                    view.got()),
        fmt::format("presets: {}", fmt::join(preset_names(), ", ")));
  if (const std::optional<JsonView> formula = view.find(kExpressionKey)) {
    MOEJIT_TRY(view.check_keys(std::array{kExpressionKey}));
    return read_expression(*formula);
  }
  return read_chosen_preset(view);
}

}  // namespace moejit::compiler
