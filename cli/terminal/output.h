// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moejit::cli {

// Succeeds if write_file() would begin to write this file now, or if the name is empty. Commands
// ask before they compile or measure, so that a wrong name costs no time. Error: kFileWrite.
// Changes nothing.
Result<void> check_output(const std::string& path);

// Returns the JSON as commands print it: two spaces a level, U+FFFD for bytes that are no UTF-8,
// and a newline at the end.
std::string json_output(const nlohmann::ordered_json& json);

}  // namespace moejit::cli
