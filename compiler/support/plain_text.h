// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace moejit {

// Returns a text without control characters, which would command the terminal that shows it.
// Control characters of ASCII and, in UTF-8, U+0080 to U+009F become blanks. Line breaks and tabs
// stay.
std::string plain_text(std::string text);

}  // namespace moejit
