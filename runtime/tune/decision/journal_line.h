// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_document.h"
#include "runtime/tune/decision/journal.h"

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace moejit::tune {

// Any line of a session but its first; it names the session by id. A line of a whole step, as
// earlier versions wrote them, has no event.
struct SessionEvent {
  std::string session, problem;
  std::optional<Event> event;
};

using Line = std::variant<Session, SessionEvent>;

// Return the line as text, without newline. Numbers are read back exactly; a number that is not
// finite becomes null, which read_line() refuses. Error: the session's objects are not JSON.
Result<std::string> text_of(const Session& session);
std::string text_of(std::string_view session, std::string_view problem, const Event& event);

// Returns whether the document is the first line of a session, of any format.
bool begins_session(const JsonDocument& document);

// Reads a line. Returns errors as read_journal() does.
Result<Line> read_line(const JsonDocument& document);

// Reads the text of a line as JSON. read_line() then names the source and line `number` in its
// errors. Own errors do not have the place: kInvalidJson, or kInvalidValue if the line is too long.
Result<JsonDocument> parse_line(std::string_view text, std::string_view source_name,
                                int32_t number);

// Returns the error of a line that parse_line() refuses, with source, line and column.
Error error_of_line(std::string_view text, std::string_view source_name, int32_t number);

// Returns whether a line, cut off anywhere, may have been the first line of a session.
bool may_have_begun_session(std::string_view text);

}  // namespace moejit::tune
