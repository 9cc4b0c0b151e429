// SPDX-License-Identifier: Apache-2.0
// The journal of a tuner has everything that it measured, one JSON object a line:
//
//   {"journal":"moejit-tuning-journal-1","session":"7f3a","gpu":{"arch":"sm_90a"},"context":{}}
//   {"session":"7f3a","problem":"fc1","candidates":[{"stages":4},{"stages":5}],
//    "estimated_share":0.25}
//   {"session":"7f3a","problem":"fc1","round":1,"place":"default_first","choices":{"stages":4},
//    "microseconds":812.5,"megahertz":1402,"watts":690}
//   {"session":"7f3a","problem":"fc1","choices":{"stages":5},"fault":"spills","detail":"..."}
//
// (each is one line in a file). A session is one run of a tuner. A file may hold several, also
// interleaved, and journals may be joined with cat. Candidates are told apart by their choices and
// never by their place in a list, so that a list may change between sessions. Journals of earlier
// versions have lines of whole steps too, with "step_choices" or "step_round", which are read over.
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "runtime/tune/decision/race.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::tune {

constexpr std::string_view kJournalFormat = "moejit-tuning-journal-1";
constexpr int64_t kMostJournalBytes = int64_t{256} << 20;
constexpr std::size_t kMostLineBytes = 64 << 10;   // including its newline
constexpr std::size_t kMostDetailBytes = 8 << 10;  // of a fault's detail; the rest is cut off

// One run of a tuner. `gpu` and `context` are JSON objects as text.
struct Session {
  std::string id;              // unique among all sessions whose journals may be joined
  std::string gpu = "{}";      // what times depend on: only times with equal texts are compared
  std::string context = "{}";  // for people: version of the tool, driver, date

  bool operator==(const Session&) const = default;
};

// The candidates of a problem from cheap to expensive, the default first. No two are equal.
struct CandidateList {
  std::vector<compiler::Choices> candidates;
  std::vector<std::string> text_digests = {};  // compiler::text_digest() of each; or none at all
  // For people: the problem's share, 0 to 1, of the estimated time of all problems of its sweep.
  std::optional<double> estimated_share = {};

  bool operator==(const CandidateList&) const = default;
};

// The place in its round where a block was timed.
enum class Place { kDefaultFirst, kCandidate, kDefaultLast };
std::string_view to_string(Place place);

// A block of launches of one candidate.
struct Block {
  int32_t round = 1;  // within its session and problem, from 1
  Place place = Place::kCandidate;
  compiler::Choices choices;
  double microseconds = 0.0;        // of one launch; see is_time_us()
  std::optional<double> megahertz;  // mean clock of the SMs
  std::optional<double> watts;      // mean power

  bool operator==(const Block&) const = default;
};

// A fault that was found at this place of the journal; it rules its candidate out.
struct FoundFault {
  compiler::Choices choices;
  Fault fault = Fault::kDoesNotCompile;
  std::string detail;  // such as the compiler's log

  bool operator==(const FoundFault&) const = default;
};

using Event = std::variant<CandidateList, Block, FoundFault>;

struct Entry {
  std::size_t session = 0;  // index into the journal's sessions
  std::string problem;      // any text that identifies a problem
  Event event;

  bool operator==(const Entry&) const = default;
};

struct Journal {
  std::vector<Session> sessions;  // in the order in which they begin
  std::vector<Entry> entries;     // in the order of the file
  // How many lines are incomplete since a tuner was killed while writing them; they are ignored.
  // Such a line is the last of a tuner, so it ends the file or stands before the first line of a
  // session.
  int32_t torn_lines = 0;
};

// Reads a journal. Unknown fields and blank lines are ignored. A line of an unknown kind is an
// error, since it may decide something. A last line that lacks only its newline counts as whole.
// Errors name file and line: kFileNotFound, kFileRead, kInvalidJson, kMissingKey, kWrongType;
// kUnsupported for another format. kInvalidValue for a file or line longer than the limits above, a
// value out of range, or a line before its session.
Result<Journal> read_journal(const std::string& path);

}  // namespace moejit::tune
