// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/decision/race.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {

// What came of an entry of a tuning record that was to be measured again.
enum class Verdict {
  kHolds,
  kNoLongerHolds,
  kTextChanged,  // the kernel is another one than that of the record
  kNotOffered,   // this version of moejit has no such kernel for the problem
  kNotMeasured,  // it was interrupted, or the usual kernel does not run
};

// Returns the name that JSON has for the verdict: "no_longer_holds".
std::string_view to_string(Verdict verdict);

// An entry, with what was measured now.
struct VerifiedEntry {
  compiler::TuningEntry entry;
  std::string subject;  // TuneProblem::subject
  Verdict verdict = Verdict::kNotMeasured;
  std::string reason = {};                // of any verdict but kHolds, in words
  std::optional<Standing> measured = {};  // of the recorded choices; none without interval

  bool operator==(const VerifiedEntry&) const = default;
};

// Returns "holds", "text changed", "is not offered any more" or the like, with the reason.
std::string verdict_text(const VerifiedEntry& verified);

// Returns the rules of a race between the usual choices and recorded ones. They are those of any
// race, but that nobody is dropped before there is an interval to compare.
RaceRules verify_rules();

// Adds what a race of the usual choices and the entry's found. The entry holds if the new interval
// overlaps its own or lies below it, or if its choices are still faster for certain.
VerifiedEntry judged(VerifiedEntry verified, const Outcome& outcome, bool is_text_changed);

// Returns the problems of a record's entries in the order in which samples take them. The order is
// by chance, and the same for equal records: that of the SHA-256 of the record's JSON and the name.
std::vector<std::string> sampling_order(const compiler::TuningRecord& record);

}  // namespace moejit::tune
