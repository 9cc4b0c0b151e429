// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/delayed_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moejit::reference {
namespace {

void update_column(ScaleState& state, std::int64_t column, const DelayedRule& rule) {
  // The history as a list: the oldest step first, this step last.
  std::vector<float> steps;
  const auto rows = static_cast<std::int64_t>(state.amax_history.size()) / state.columns;
  const auto at = [&](std::int64_t row) -> float& {
    return state.amax_history[static_cast<std::size_t>(row * state.columns + column)];
  };
  if (at(0) == 0.0F) return;
  for (std::int64_t row = 1; row < rows; ++row) steps.push_back(at(row));
  steps.push_back(at(0));
  const float amax =
      rule.is_most_recent ? steps.back() : *std::max_element(steps.begin(), steps.end());
  if (rows > 1) {
    steps.erase(steps.begin());
    for (std::int64_t row = 1; row < rows; ++row)
      at(row) = steps[static_cast<std::size_t>(row - 1)];
  }
  at(0) = 0.0F;
  if (!std::isfinite(amax) || amax <= 0.0F) return;
  const float scale = rule.largest / amax;
  state.scale[static_cast<std::size_t>(column)] =
      std::isinf(scale) ? std::numeric_limits<float>::max() : scale;
}

}  // namespace

void record_amax(ScaleState& state, std::int64_t column, float amax) {
  float& recorded = state.amax_history[static_cast<std::size_t>(column)];
  if (amax > recorded) recorded = amax;
}

void update_scales(ScaleState& state, const DelayedRule& rule) {
  for (std::int64_t column = 0; column < state.columns; ++column)
    update_column(state, column, rule);
}

}  // namespace moejit::reference
