// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/decision/race.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {

// What came of measuring an entry of a tuning record again.
enum class Verdict {
  kHolds,
  kNoLongerHolds,
  kTextChanged,  // the kernel's text is no longer the record's
  kNotOffered,   // this version of moejit has no such kernel for the problem
  kNotMeasured,  // measuring was interrupted, or the usual kernel does not run
};

// Returns the name that JSON has for the verdict: "no_longer_holds".
std::string_view to_string(Verdict verdict);

// An entry, with the new measurement.
struct VerifiedEntry {
  compiler::TuningEntry entry;
  std::string subject;  // TuneProblem::subject
  Verdict verdict = Verdict::kNotMeasured;
  std::string reason = {};                // in words; empty for kHolds
  std::optional<Standing> measured = {};  // of the recorded choices; none without interval

  bool operator==(const VerifiedEntry&) const = default;
};

// Returns "holds", "text changed", "is not offered any more" or the like, with the reason.
std::string verdict_text(const VerifiedEntry& verified);

// Returns the rules of a race between the usual choices and recorded ones. They are the rules of
// any race, except that nothing is dropped before there is an interval to compare.
RaceRules verify_rules();

// Adds the outcome of a race between the usual choices and the entry's. The entry holds if the new
// interval overlaps the recorded one or lies below it. It also holds if its choices are still
// faster for certain.
VerifiedEntry judged(VerifiedEntry verified, const Outcome& outcome, bool is_text_changed);

// Returns the problems of a record's entries in the order in which samples take them. The order is
// random, but equal records have the same order. It goes by a SHA-256 over the SHA-256 of the
// record's JSON and the problem's name.
std::vector<std::string> sampling_order(const compiler::TuningRecord& record);

}  // namespace moejit::tune
