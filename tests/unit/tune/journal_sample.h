// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/journal_writer.h"
#include "tests/support/matchers.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

// What the tests of journals write.
namespace moejit::tune {

inline const Session kSession{
    .id = "7f3a", .gpu = R"({"arch":"sm_90a","sms":132})", .context = R"({"driver":"580.1"})"};
inline const compiler::Choices kDefault{{"band_tiles", 16}, {"stages", 4}};
inline const compiler::Choices kWider{{"band_tiles", 32}, {"stages", 4}};
inline const compiler::Choices kDeeper{{"band_tiles", 16}, {"stages", 5}};
inline const CandidateList kList{{kDefault, kWider, kDeeper}, {}, 0.25};

// GPUs as the sessions of journals name them.
inline constexpr const char* kH200 = R"({"name":"NVIDIA H200","arch":"sm_90a","sm_count":132})";
inline constexpr const char* kH20 = R"({"name":"NVIDIA H20","arch":"sm_90a","sm_count":78})";

// Returns events of each kind: a list, a round with a fault in it.
inline std::vector<Event> sample_events() {
  return {kList, Block{1, Place::kDefaultFirst, kDefault, 812.5, 1402.25, 690.0},
          Block{1, Place::kCandidate, kWider, 0.1, {}, {}},
          FoundFault{kDeeper, Fault::kChangesBits, "row 3: \"got\" 1,\nwanted 2 \xc3\xa4"},
          Block{1, Place::kDefaultLast, kDefault, 1.0 / 3.0, 1300.0, {}}};
}

// Writes a file without syncing it, for tests that write hundreds.
inline void write_fast(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Writes a session with these events of a problem, and asserts that it could be done.
inline void write_journal(const std::filesystem::path& path, const Session& session,
                          const std::vector<Event>& events, std::string_view problem = "fc1") {
  auto writer = JournalWriter::open(path, session);
  ASSERT_TRUE(testing::succeeded(writer));
  for (const Event& event : events) ASSERT_TRUE(testing::succeeded(writer->append(problem, event)));
}

inline std::vector<Event> events_of(const Journal& journal) {
  std::vector<Event> events;
  for (const Entry& entry : journal.entries) events.push_back(entry.event);
  return events;
}

}  // namespace moejit::tune
