// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/python_json.h"

#include <algorithm>
#include <array>

namespace moejit::compiler {
namespace {

constexpr std::array kNonFinite = std::to_array<std::string_view>({"NaN", "Infinity", "-Infinity"});

// Returns the length of the string that begins at `start` with its quote, with both quotes.
std::size_t string_length(std::string_view text, std::size_t start) {
  std::size_t end = start + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size()) - start;
}

std::size_t non_finite_length(std::string_view text) {
  for (const std::string_view name : kNonFinite)
    if (text.starts_with(name)) return name.size();
  return 0;
}

std::string replace_non_finite(std::string_view text) {
  std::string replaced;
  replaced.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = text[i] == '"' ? string_length(text, i) : 1;
    if (const std::size_t number = non_finite_length(text.substr(i)); number > 0) {
      replaced += "null";
      length = number;
    } else {
      replaced += text.substr(i, length);
    }
    i += length;
  }
  return replaced;
}

}  // namespace

Result<JsonDocument> parse_python_json(std::string_view text, const JsonOptions& options) {
  const bool is_python = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  if (text.size() > options.max_bytes || !is_python) return parse_json(text, options);
  return parse_json(replace_non_finite(text), options);
}

}  // namespace moejit::compiler
