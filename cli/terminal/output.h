// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace moejit::cli {

// Succeeds if write_file() would begin to write this file now, or if the name is empty. Commands
// ask before they compile or measure, so that a wrong name costs no time. Error: kFileWrite.
// Changes nothing.
Result<void> check_output(const std::string& path);

// Returns the JSON as commands print it: two spaces a level, U+FFFD for bytes that are no UTF-8,
// and a newline at the end.
std::string json_output(const nlohmann::ordered_json& json);

// Parses JSON that anybody may have written, to be shown. Values nested deeper than any of ours are
// left out, since writing takes stack for each level. Returns a discarded value if the JSON is
// malformed.
nlohmann::ordered_json parse_foreign_json(std::string_view text);

// Returns a word as a shell takes it: between quotes if it holds more than plain characters.
std::string shell_word(std::string_view word);

// Returns a help text in lines of at most `width` characters. Longer lines are broken between words
// and go on below the column of their description. Examples stay as they are, since people copy
// them. A width under 40, such as 0, changes nothing.
std::string wrap_help(std::string_view text, int32_t width);

}  // namespace moejit::cli
