// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace moejit {

// Returns the text with a number before each line, for the logs of compilers.
std::string numbered_lines(std::string_view text);

}  // namespace moejit
