// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_text.h"
#include "compiler/support/json_view.h"
#include "runtime/tune/decision/journal.h"

#include <optional>
#include <string_view>

namespace moejit::tune {

// Add the members of an event of a step to its line.
void put(Json& line, const StepList& list);
void put(Json& line, const StepRound& round);

// Read the members of such a line. `choices` and `number` are the members that tell its kind.
// Errors are as read_journal() returns them.
Result<Event> read_step_list(const JsonView& choices);
Result<Event> read_step_round(const JsonView& root, const JsonView& number);

// Reads a time. Error kInvalidValue: is_time_us() refuses the number.
Result<double> read_time_us(const JsonView& view);
// Reads a number that a GPU told; none if the member is missing.
Result<std::optional<double>> read_reading(const JsonView& root, std::string_view key);

}  // namespace moejit::tune
