// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/replay_steps.h"
#include "tests/unit/tune/journal_sample.h"
#include "tests/unit/tune/step_rounds.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

// Journals for the tests of whole steps.
namespace moejit::tune {

constexpr const char* kStep = "step layer=a plan_digest=0f tokens=64 passes=forward";

// Collects the entries of a journal.
struct StepSheet {
  Journal journal{.sessions = {kSession}, .entries = {}, .torn_lines = 0};
  std::size_t session = 0;
  std::string step = kStep;

  void begin_session(const std::string& id, const std::string& gpu = kSession.gpu) {
    session = journal.sessions.size();
    journal.sessions.push_back({.id = id, .gpu = gpu, .context = kSession.context});
  }
  void add(const std::string& problem, const Event& event) {
    journal.entries.push_back({session, problem, event});
  }
  // Adds a race that kDeeper wins with that many percent of the usual time. kWider gains 5 %.
  void add_race(const std::string& problem, double percent = 90, int32_t rounds = 6,
                const std::string& digest = "d") {
    CandidateList list = kList;
    if (!digest.empty()) list.text_digests = {digest + "0", digest + "1", digest + "2"};
    add(problem, list);
    for (int32_t round = 1; round <= rounds; ++round) {
      add(problem, Block{round, Place::kDefaultFirst, kDefault, 100.0, {}, {}});
      add(problem, Block{round, Place::kCandidate, kWider, 95.0, {}, {}});
      add(problem, Block{round, Place::kCandidate, kDeeper, percent, {}, {}});
      add(problem, Block{round, Place::kDefaultLast, kDefault, 100.0, {}, {}});
    }
  }
  // Returns what the races propose for these problems now.
  StepList proposed(const std::vector<std::string>& problems) const {
    return proposed_choices(replay(journal).value(), journal.sessions[session].gpu, problems);
  }
  void add_list(const std::vector<std::string>& problems) { add(step, proposed(problems)); }
  // Adds rounds of the set that the confirmation of the step asks for.
  void add_rounds(double percent, int32_t count, int32_t first = 1) {
    for (int32_t round = first; round < first + count; ++round)
      add(step, StepRound{.round = round, .set = digest(), .times = step_times(percent)});
  }
  std::string digest() const {
    for (const ReplayedStep& each : replayed())
      if (each.step == step && each.gpu == journal.sessions[session].gpu)
        return each.confirmation.set_digest();
    return "none";
  }
  std::vector<ReplayedStep> replayed() const {
    const auto steps = replay_steps(journal, replay(journal).value());
    EXPECT_TRUE(testing::succeeded(steps));
    return steps.value_or(std::vector<ReplayedStep>());
  }
};

}  // namespace moejit::tune
