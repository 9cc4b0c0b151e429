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

// Read such a line. `choices` and `number` are the members that tell its kind. Errors are as of
// read_journal().
Result<Event> read_step_list(const JsonView& choices);
Result<Event> read_step_round(const JsonView& root, const JsonView& number);

// Reads a time that is_time_us() takes. Error kInvalidValue: another number.
Result<double> read_time_us(const JsonView& view);
// Reads a number that a GPU told; none if there is no such member.
Result<std::optional<double>> read_reading(const JsonView& root, std::string_view key);

}  // namespace moejit::tune
