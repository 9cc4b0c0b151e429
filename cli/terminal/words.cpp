// SPDX-License-Identifier: Apache-2.0

#include "cli/terminal/words.h"

#include <algorithm>

namespace moejit::cli {

std::string shell_word(std::string_view argument) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(argument);
  std::string word = "'";
  for (const char c : argument) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

namespace {

// Returns where the description of an option or command begins: after its name and at least two
// blanks.
size_t description_column(std::string_view line) {
  const size_t name = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", name);
  if (name == 0 || gap == std::string_view::npos) return name;
  return std::min(line.find_first_not_of(' ', gap), line.size());
}

void add_wrapped(std::string& text, std::string_view line, size_t width) {
  const size_t column = description_column(line);
  const std::string indent(column < width / 2 ? column : 4, ' ');
  std::string begun;
  while (begun.size() + line.size() > width) {
    const size_t room = width - begun.size();
    const size_t first = begun.empty() ? column : 0;  // the description stays on the name's line
    size_t end = line.rfind(' ', room);
    if (end == std::string_view::npos || end <= first) end = line.find(' ', first);
    if (end == std::string_view::npos) break;
    text += begun + std::string(line.substr(0, end)) + "\n";
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    begun = indent;
  }
  text += begun + std::string(line) + "\n";
}

}  // namespace

std::string wrap_help(std::string_view text, int32_t width) {
  if (width < 40) return std::string(text);
  std::string wrapped;
  bool is_example = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    is_example = is_example || line.starts_with("Examples:");
    if (is_example)
      wrapped += std::string(line) + "\n";
    else
      add_wrapped(wrapped, line, static_cast<size_t>(width));
  }
  return wrapped;
}

}  // namespace moejit::cli
