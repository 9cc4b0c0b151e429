// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/plain_text.h"

#include <cstddef>

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

}  // namespace moejit
