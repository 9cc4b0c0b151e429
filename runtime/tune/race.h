// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/tune/fault.h"
#include "runtime/tune/median_interval.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace moejit::tune {

// The numbers by which races are decided. They are choices of this project, not facts of hardware.
// Two blocks of one kernel have differed by 0.5 to 8 %, mostly for the clock's sake, which ratios
// cancel: 10 % behind after 2 rounds and 4 % after 4 is more than what remains explains. A gain
// below 1 % is not worth leaving the kernel that everybody else runs.
struct RaceRules {
  // Before `least_rounds` nothing is decided by intervals, which need 6; after `most_rounds` what
  // is known by then decides.
  int32_t least_rounds = 6, most_rounds = 16;
  double indifference = 0.01;         // a smaller gain than this share of the time counts as none
  double drop_factor_after_2 = 1.10;  // times the best median: slower ones leave after 2 rounds,
  double drop_factor_after_4 = 1.04;  // and after 4

  bool operator==(const RaceRules&) const = default;
};

constexpr double kShortestUs = 1e-6, kLongestUs = 86400e6;  // a picosecond, a day
// Returns whether a launch may take that many microseconds; false for NaN.
constexpr bool is_time_us(double us) { return us >= kShortestUs && us <= kLongestUs; }

// The times of one round in microseconds a launch, each from a block of launches. The default is
// timed first and last, each racing candidate once in between.
struct Round {
  double default_first_us = 0.0, default_last_us = 0.0;
  std::map<int32_t, double> candidates_us;  // by candidate
};

// Where a candidate stands. A ratio is the candidate's time over the geometric mean of the
// default's two times of the same round.
struct Standing {
  int32_t rounds = 0;  // in which it was timed
  double median_ratio = 0.0;
  double low = 0.0;  // 95 % interval of the median; (0, infinity) below 6 rounds
  double high = std::numeric_limits<double>::infinity();
  int32_t dropped_after = 0;  // its rounds by then; 0: never
  std::optional<Fault> fault;

  bool operator==(const Standing&) const = default;
};

struct Outcome {
  int32_t winner = 0;
  bool is_settled = false;  // otherwise more rounds may name another winner
  // Half the width of the 95 % interval of the median of (default last / default first), infinite
  // below 6 rounds; and what a winner must gain for certain: 2 * noise, at least the indifference.
  double noise = std::numeric_limits<double>::infinity();
  double zone = std::numeric_limits<double>::infinity();
  std::vector<Standing> standings;  // by candidate; the default's ratio is 1

  bool operator==(const Outcome&) const = default;
};

// Decides which of several candidate kernels replaces candidate 0, the default, if any. Only a
// candidate that was not dropped and whose interval lies below 1 - zone may win. Of these the one
// of lowest median is best; as the list of candidates is ordered from cheap to dear, the first
// whose interval overlaps the best's wins, if its median is within the indifference of the best's.
// The race ends early if all but the default are out, or
// if the best may win and the medians of all others left are within the indifference of its own.
//
// It reads no clock and draws no numbers: the same calls in the same order have the same outcome.
class Race {
 public:
  // Starts a race of `candidates` candidates, the default among them.
  explicit Race(int32_t candidates, const RaceRules& rules = {});

  // Returns the candidates to time in the next round, ascending; empty once the race is settled.
  std::vector<int32_t> racing() const;

  // Adds a round. A candidate that it lacks has one round fewer. Errors (kInvalidValue, and the
  // round does not count): a time that is none by is_time_us(), a candidate that is not racing, no
  // candidate at all.
  Result<void> add(const Round& round);

  // Rules a candidate out, before or during the race or after it. Candidates that were dropped for
  // being slower than this one race again. A candidate keeps its first fault. Errors
  // (kInvalidValue): the default, or no such candidate.
  Result<void> disqualify(int32_t candidate, Fault fault);

  Outcome outcome() const;

 private:
  struct Runner {
    std::vector<double> ratios;
    MedianInterval figure;  // of the ratios
    int32_t dropped_after = 0;
    std::optional<Fault> fault;

    int32_t rounds() const { return static_cast<int32_t>(ratios.size()); }
    bool is_contender() const { return dropped_after == 0 && !fault; }
  };

  Result<void> check(const Round& round) const;
  void drop_runners();
  void drop_slower(int32_t after, double factor);
  void drop_hopeless();
  double noise() const;
  double zone() const;
  const Runner* best_contender(int32_t least_rounds) const;
  bool is_clear() const;
  int32_t winner() const;

  RaceRules rules_;
  std::vector<Runner> runners_;         // by candidate; nothing is kept of the default
  std::vector<double> default_ratios_;  // last over first, by round
};

}  // namespace moejit::tune
