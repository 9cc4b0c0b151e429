// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/trial/inputs.h"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace moejit::cli {

// Returns ", uniform routing" for the first line of a report: what random inputs depend on, if that
// is not the default. Empty if nothing is routed at random.
std::string random_text(const std::optional<trial::RandomInputs>& random);

// Adds what random inputs depend on; nothing if nothing is routed at random.
void add_random(nlohmann::ordered_json& json, const std::optional<trial::RandomInputs>& random);

}  // namespace moejit::cli
