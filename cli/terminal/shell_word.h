// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace moejit::cli {

// Returns a word as a shell takes it: between quotes if it holds more than plain characters.
std::string shell_word(std::string_view word);

}  // namespace moejit::cli
