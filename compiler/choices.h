// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_text.h"
#include "compiler/support/json_view.h"

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
// Reads such an object. Errors: kWrongType, and kInvalidValue for a value below 0 or above 2^40.
Result<Choices> read_choices(const JsonView& view);

}  // namespace moejit::compiler
