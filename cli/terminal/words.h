// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::cli {

// Returns a word as a shell takes it: between quotes if it holds more than plain characters.
std::string shell_word(std::string_view word);

// Returns a help text in lines of at most `width` characters. Longer lines are broken between words
// and go on below the column of their description. Examples stay as they are, since people copy
// them. A width under 40, such as 0, changes nothing.
std::string wrap_help(std::string_view text, int32_t width);

}  // namespace moejit::cli
