// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace moejit {

// Returns a text with its letters A to Z as small ones, whatever the host's locale.
inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::for_each(lower, [](char& c) { c = 'A' <= c && c <= 'Z' ? c - 'A' + 'a' : c; });
  return lower;
}

}  // namespace moejit
