// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_text.h"

#include <cstdint>
#include <map>
#include <string>

namespace moejit::compiler {

// What a planner chose for one kernel where it had a choice: a value for each knob by name, such as
// {"band_tiles": 4, "stages": 3}. Knobs never change the bits of a result.
using Choices = std::map<std::string, int64_t, std::less<>>;

// Returns the choices in one line, "band_tiles=4 stages=3"; empty if there are none.
std::string to_string(const Choices& choices);
// Returns them as an object: {"band_tiles": 4, "stages": 3}.
Json to_json(const Choices& choices);

}  // namespace moejit::compiler
