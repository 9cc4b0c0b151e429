// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace moejit {

// Returns a text without control characters, which would command the terminal that shows it.
// Control characters of ASCII and, in UTF-8, U+0080 to U+009F become blanks. Line breaks and tabs
// stay.
std::string plain_text(std::string text);

// Returns a text with its letters A to Z as small ones, whatever the host's locale.
inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::for_each(lower, [](char& c) { c = 'A' <= c && c <= 'Z' ? c - 'A' + 'a' : c; });
  return lower;
}

// Returns the text with a number before each line, for the logs of compilers.
std::string numbered_lines(std::string_view text);

}  // namespace moejit
