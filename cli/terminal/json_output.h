// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moejit::cli {

// Returns the JSON as commands print it: two spaces a level, U+FFFD for bytes that are no UTF-8,
// and a newline at the end.
std::string json_output(const nlohmann::ordered_json& json);

}  // namespace moejit::cli
