// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace moejit {
namespace {

// Names are short; longer ones misspell nothing and must not cost time.
constexpr std::size_t kMaxLength = 64;

// Returns the optimal string alignment distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > kMaxLength) return {};
  std::string_view nearest;
  std::size_t best = name.size() / 2 + 1;  // half of the letters wrong: another word
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kMaxLength) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace moejit
