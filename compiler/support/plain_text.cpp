// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/plain_text.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>

namespace moejit {

std::string plain_text(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_kept = byte == '\n' || byte == '\t';
    if ((byte < 0x20 && !is_kept) || byte == 0x7f) text[i] = ' ';
    if (byte != 0xc2 || i + 1 == text.size()) continue;
    const auto next = static_cast<unsigned char>(text[i + 1]);
    if (next >= 0x80 && next < 0xa0) text[i] = text[i + 1] = ' ';
  }
  return text;
}

std::string numbered_lines(std::string_view text) {
  std::string lines;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += fmt::format("{:4} | {}\n", number, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace moejit
