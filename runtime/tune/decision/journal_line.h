// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_document.h"
#include "runtime/tune/decision/journal.h"

#include <string>
#include <string_view>
#include <variant>

namespace moejit::tune {

// A line behind the first of a session, which it names by id.
struct SessionEvent {
  std::string session, problem;
  Event event;
};

using Line = std::variant<Session, SessionEvent>;

// Returns the line as text, without newline. Numbers are read back exactly; a number that is not
// finite becomes null, which read_line() refuses. Errors: the session's objects are not JSON.
Result<std::string> text_of(const Session& session);
std::string text_of(std::string_view session, std::string_view problem, const Event& event);

// Returns whether the document is the first line of a session, of any format.
bool begins_session(const JsonDocument& document);

// Reads a line. Errors are as of read_journal().
Result<Line> read_line(const JsonDocument& document);

// Reads the text of a line as JSON. Errors of read_line() name the source and `number` as the line.
// Errors: kInvalidJson, or kInvalidValue if the line is too long, without the place.
Result<JsonDocument> parse_line(std::string_view text, std::string_view source_name,
                                int32_t number);

// Returns the error of a line that parse_line() refuses, with source, line and column.
Error error_of_line(std::string_view text, std::string_view source_name, int32_t number);

// Returns whether a line that is cut off anywhere may have been the first one of a session.
bool may_have_begun_session(std::string_view text);

}  // namespace moejit::tune
