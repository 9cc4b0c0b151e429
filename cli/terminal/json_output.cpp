// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/json_output.h"

#include <nlohmann/json.hpp>

namespace moejit::cli {

std::string json_output(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace moejit::cli
