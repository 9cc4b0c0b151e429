// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/journal.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "runtime/tune/decision/journal_line.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::tune {
namespace {

// Joins the lines of a file to a journal, in their order.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Result<void> add(std::string_view text) {
    ++number_;
    if (text.find_first_not_of(" \t\r") == text.npos) return {};
    const Result<JsonDocument> document = parse_line(text, path_, number_);
    if (!document) return add_torn(text);
    // Only the first line of a session may follow a torn line.
    if (torn_lines_ > 0 && !begins_session(*document)) return refuse(torn_text_, torn_number_);
    journal_.torn_lines += std::exchange(torn_lines_, 0);
    has_begun_ = true;
    MOEJIT_TRY_ASSIGN(Line line, read_line(*document));
    return std::visit([&](auto& kind) { return take(std::move(kind)); }, line);
  }

  Journal finish() {
    journal_.torn_lines += torn_lines_;
    return std::move(journal_);
  }

 private:
  // Adds a torn line. At the beginning of a file or after another torn line, it can only be the
  // first line of a session.
  Result<void> add_torn(std::string_view text) {
    const bool wants_session = !has_begun_ || torn_lines_ > 0;
    if (wants_session && !may_have_begun_session(text)) return refuse(text, number_);
    if (torn_lines_++ > 0) return {};
    torn_text_ = text;
    torn_number_ = number_;
    return {};
  }

  tl::unexpected<Error> refuse(std::string_view text, int32_t number) const {
    Error error = error_of_line(text, path_, number);
    error.hint = "only the last line of a tuner may be torn: restore the file, or remove the line";
    return tl::unexpected(std::move(error));
  }

  std::size_t index_of(std::string_view id) const {
    const auto found = std::ranges::find(journal_.sessions, id, &Session::id);
    return static_cast<std::size_t>(found - journal_.sessions.begin());
  }

  tl::unexpected<Error> refuse_session(std::string_view id, std::string_view what,
                                       std::string hint) const {
    return fail(
        Stage::kFile, ErrorCode::kInvalidValue,
        fmt::format("{}:{}: $.session: got {}, {}", path_, number_, quote_for_message(id), what),
        std::move(hint));
  }

  // A session that begins again goes on. This happens if a journal was joined with its own copy.
  Result<void> take(Session session) {
    const std::size_t index = index_of(session.id);
    if (index == journal_.sessions.size())
      journal_.sessions.push_back(std::move(session));
    else if (journal_.sessions[index].gpu != session.gpu)
      return refuse_session(session.id, "which began on another gpu, wanted a new id",
                            "join journals only if their sessions have different ids");
    return {};
  }

  Result<void> take(SessionEvent line) {
    const std::size_t index = index_of(line.session);
    if (index == journal_.sessions.size())
      return refuse_session(line.session, "wanted a session that began on an earlier line",
                            "is the beginning of the journal missing?");
    if (line.event)
      journal_.entries.push_back({index, std::move(line.problem), std::move(*line.event)});
    return {};
  }

  const std::string& path_;
  int32_t number_ = 0;  // number of the current line
  Journal journal_;
  bool has_begun_ = false;      // whether a whole line was read
  int32_t torn_lines_ = 0;      // torn lines just before the current line
  std::string_view torn_text_;  // text of the first of the torn lines
  int32_t torn_number_ = 0;
};

}  // namespace

Result<Journal> read_journal(const std::string& path) {
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(path, kMostJournalBytes));
  Reader reader(path);
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    MOEJIT_TRY(reader.add(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return reader.finish();
}

}  // namespace moejit::tune
