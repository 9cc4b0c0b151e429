// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/tune/decision/median_interval.h"
#include "runtime/tune/decision/step_choice.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::tune {

// The numbers by which tuned choices are confirmed. They are choices of this project. Rounds are
// bounded as in a race: intervals need 6, and 16 rounds of four blocks of 20 ms take 1.3 s. Six
// sets then take 8 s, however many problems a layer has. A set is looked at after every round from
// the 6th on. So a set that gains nothing is confirmed by chance in 4.1 % of all cases, and one of
// six such sets in 22 %. Such sets are rare, since each choice has passed the rules of the races on
// its own.
struct StepRules {
  int32_t least_rounds = 6, most_rounds = 16;  // of a set
  int32_t most_sets = 6;

  bool operator==(const StepRules&) const = default;
};

enum class StepState {
  kMeasuring,  // the set needs more rounds
  kConfirmed,  // the set makes the step faster for certain
  kUsual,      // no tuned choice is left
};

// Describes the set in use. Times are medians of all its blocks in microseconds, 0 without a round.
// A ratio is the geometric mean of a round's tuned times over the geometric mean of its
// default times.
struct StepFigure {
  int32_t rounds = 0;
  MedianInterval ratio;
  double microseconds = 0.0, default_microseconds = 0.0;

  bool operator==(const StepFigure&) const = default;
};

// Decides which of the choices that races proposed a whole step keeps. A kernel that is the fastest
// alone may slow its neighbors, so the choices are measured together, all of them first. A set is
// confirmed once the interval of its ratio lies below 1. A set whose interval lies at 1 or above,
// or that is undecided after the most rounds, loses its least certain choices. It loses one, if the
// sets left are enough to go on like that to the last choice, else the less certain half. Half,
// because one of sixty choices changes a step by less than a round can tell. After the last set
// nothing is kept.
//
// It reads no clock: the same choices and rounds in the same order have the same outcome.
class StepConfirmation {
 public:
  // Takes the choices of the step's problems, at most one for each problem. Choices with no
  // certainty are the usual ones, and are in no set.
  explicit StepConfirmation(std::vector<StepChoice> choices, const StepRules& rules = {});

  StepState state() const { return state_; }

  // Returns the choices to measure the tuned step with, or that are confirmed. The most certain
  // come first, equally certain ones by name. All other problems have their usual choices.
  std::span<const StepChoice> set() const { return std::span(tuned_).first(in_use_); }
  // Returns the choices that were given up, the most certain first.
  std::span<const StepChoice> dropped() const { return std::span(tuned_).subspan(in_use_); }
  // Returns 32 hexadecimal digits over set(): its problems, choices and texts in any order.
  const std::string& set_digest() const { return set_digest_; }
  // Returns how many sets were measured or begun.
  int32_t sets() const { return sets_; }
  StepFigure figure() const;  // of set()

  // Adds a round of set(). Error kInvalidValue, and the round does not count: is_time_us() refuses
  // a time, or nothing is being measured.
  Result<void> add(const StepTimes& times);

 private:
  void decide();
  void use(std::size_t count);

  StepRules rules_;
  std::vector<StepChoice> tuned_;  // the most certain first
  std::size_t in_use_ = 0;         // how many of them are in the set
  std::string set_digest_;
  int32_t sets_ = 0;
  StepState state_ = StepState::kUsual;
  std::vector<StepTimes> rounds_;  // of the set
  MedianInterval ratio_;
};

}  // namespace moejit::tune
