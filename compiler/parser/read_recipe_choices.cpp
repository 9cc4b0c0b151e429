// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_recipe_choices.h"

#include "compiler/parser/layer_schema.h"
#include "compiler/parser/read_fields.h"
#include "compiler/recipe.h"

#include <array>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

constexpr std::array kGradientFormats = {GradientFormat::kE5m2, GradientFormat::kE4m3};
constexpr std::array kAmaxComputeAlgos = {AmaxComputeAlgo::kMax, AmaxComputeAlgo::kMostRecent};

// A choice and the recipes that have it.
struct Choice {
  std::string_view key;
  bool (*is_of)(const Recipe& recipe);
  std::string_view whose;   // describes those recipes
  std::string_view wanted;  // of others
};

constexpr bool has_history(const Recipe& recipe) { return recipe.has_history; }

constexpr std::string_view kHistory = "scales follow from the steps before";
constexpr std::string_view kNoField = "no such field";
constexpr Choice kPowersOfTwo{"power_of_2_scales", may_round_scales,
                              "scales are quotients of the values at hand", "false"};
constexpr Choice kGradientFormat{"gradient_format", has_gradient_formats,
                                 "gradients have one scale for each expert", kNoField};
constexpr Choice kOfHistory[] = {{"margin", has_history, kHistory, kNoField},
                                 {"amax_history_len", has_history, kHistory, kNoField},
                                 {"amax_compute_algo", has_history, kHistory, kNoField}};

// Refuses a choice that the description makes, if the recipe does not have it.
Result<void> check_choice(const JsonView& root, const Choice& choice, const Recipe& recipe) {
  const std::optional<JsonView> view = root.find(choice.key);
  if (!view || choice.is_of(recipe)) return {};
  std::string names;
  for (const Recipe& other : kRecipes)
    if (choice.is_of(other)) names += fmt::format("{}{}", names.empty() ? "" : ", ", other.name);
  return view->fail(ErrorCode::kInvalidValue,
                    fmt::format("got {} with the recipe {}, wanted {}", view->got(),
                                to_string(recipe), choice.wanted),
                    fmt::format("the choice is for recipes whose {}: {}", choice.whose, names));
}

Result<bool> read_power_of_2_scales(const JsonView& root, const Recipe& recipe) {
  MOEJIT_TRY_ASSIGN(const bool has_powers, read_bool_at(root, "power_of_2_scales", false));
  if (has_powers) MOEJIT_TRY(check_choice(root, kPowersOfTwo, recipe));
  return has_powers;
}

// Reads the format of gradients into the recipe, of which it is a member.
Result<void> read_gradient_format(const JsonView& root, Recipe& recipe) {
  MOEJIT_TRY(check_choice(root, kGradientFormat, recipe));
  MOEJIT_TRY_ASSIGN(const GradientFormat format,
                    read_enum_at(root, "gradient_format", kGradientFormats, GradientFormat::kE5m2));
  if (has_gradient_formats(recipe))
    recipe.gradients = format == GradientFormat::kE4m3 ? kExpertE4m3 : kExpertE5m2;
  return {};
}

// Reads the choices of recipes whose scales follow from a history.
Result<void> read_history(const JsonView& root, Layer& layer) {
  for (const Choice& choice : kOfHistory) MOEJIT_TRY(check_choice(root, choice, layer.recipe));
  MOEJIT_TRY_ASSIGN(layer.margin, read_int_at(root, "margin", kMarginRange, layer.margin));
  MOEJIT_TRY_ASSIGN(layer.amax_history_len, read_int_at(root, "amax_history_len", kAmaxHistoryRange,
                                                        layer.amax_history_len));
  MOEJIT_TRY_ASSIGN(
      layer.amax_compute_algo,
      read_enum_at(root, "amax_compute_algo", kAmaxComputeAlgos, layer.amax_compute_algo));
  return {};
}

}  // namespace

Result<void> read_recipe_choices(const JsonView& root, Layer& layer) {
  MOEJIT_TRY_ASSIGN(layer.power_of_2_scales, read_power_of_2_scales(root, layer.recipe));
  MOEJIT_TRY(read_gradient_format(root, layer.recipe));
  return read_history(root, layer);
}

}  // namespace moejit::compiler
