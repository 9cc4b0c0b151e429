// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace moejit::compiler {

// All recipes, in the order in which errors list them.
inline constexpr std::array kRecipes = {
    Recipe::kBf16,       Recipe::kFp8Flow,    Recipe::kFp8Blockwise, Recipe::kFp8Delayed,
    Recipe::kFp8Current, Recipe::kFp8Rowwise, Recipe::kMxfp8,        Recipe::kNvfp4};

// Returns the recipe of that name; none where there is none.
inline std::optional<Recipe> find_recipe(std::string_view name) {
  const auto* const found =
      std::ranges::find(kRecipes, name, [](Recipe recipe) { return to_string(recipe); });
  return found == kRecipes.end() ? std::nullopt : std::optional(*found);
}

}  // namespace moejit::compiler
