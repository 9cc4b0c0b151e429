// SPDX-License-Identifier: Apache-2.0
#include "cli/report/random_text.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {

using trial::RandomInputs;

std::string random_text(const std::optional<RandomInputs>& random) {
  if (!random || random->routing == RandomInputs{}.routing) return {};
  return fmt::format(", {} routing", to_string(random->routing));
}

void add_random(nlohmann::ordered_json& json, const std::optional<RandomInputs>& random) {
  if (random) json["routing"] = to_string(random->routing);
}

}  // namespace moejit::cli
