// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/numbered_lines.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit {

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
