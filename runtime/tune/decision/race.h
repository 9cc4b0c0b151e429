// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/tune/decision/statistics.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace moejit::tune {

// A reason to rule a candidate out, however fast it may be.
enum class Fault {
  kDoesNotCompile,
  kSpills,         // keeps values of registers in memory
  kDoesNotLaunch,  // asks for more than the GPU has, or the driver refuses it
  kCrashes,        // ends the context: an illegal address, a trap
  kHangs,          // did not end within its time limit
  kNotFinite,      // NaN or infinity where the default has numbers
  kChangesBits,    // gives another result than the default, which no knob may cause
};

// Returns the fault's name in journals: "changes_bits".
std::string_view to_string(Fault fault);
// Returns the fault with this name; none if there is none.
std::optional<Fault> fault_named(std::string_view name);

// The numbers by which races are decided. They are choices of this project, not facts of hardware.
// At its power limit an H200 times two blocks of 15 ms of one kernel 3 to 6 % apart (standard
// deviation of the quotient). Below that limit it is 0.3 %. What a race believes therefore depends
// on the scatter that it sees: "errors" are standard errors of a median at that scatter. They are
// set so that at 3 to 6 % a copy of the default replaces it in less than 1 race of 100. A candidate
// that gains 3 % wins in more than 95; the tests say how often exactly. A gain below 1 % is not
// worth leaving the kernel that everybody else runs.
struct RaceRules {
  int32_t least_rounds = 6;      // no candidate wins before them; intervals need 6
  int32_t trial_rounds = 8;      // before them only candidates far behind are dropped
  int32_t most_rounds = 256;     // then the race ends with what is known
  double wild_scatter = 0.10;    // a race with more scatter is wild: no GPU left alone scatters so
  int32_t wild_rounds = 16;      // most rounds of a wild race; more would not get it far
  int32_t most_timings = 128;    // limit of rounds times candidates that go on after the trial
  double indifference = 0.01;    // a smaller gain than this share of the time counts as none
  double least_scatter = 0.005;  // a race that scatters less counts as scattering this much
  double drop_errors = 3.0;      // a candidate so far behind the best is dropped
  double futile_errors = 0.8;    // a candidate so far from a gain that counts is dropped
  double win_errors = 4.0;       // least gain of a winner, in standard errors

  bool operator==(const RaceRules&) const = default;
};

// Returns the rules of a race that times every candidate in `rounds` rounds and drops none. Nobody
// wins it: the rounds tell afterwards how far the choice of another race is from the best.
RaceRules exhaustive_rules(int32_t rounds);

constexpr double kShortestUs = 1e-6, kLongestUs = 86400e6;  // a picosecond, a day
// Returns whether a launch may take that many microseconds; false for NaN.
constexpr bool is_time_us(double us) { return us >= kShortestUs && us <= kLongestUs; }

// The times of one round in microseconds a launch, each from a block of launches. The default is
// timed first and last; in between, in random order, each racing candidate once and the default
// default_places() times. Rounds of old journals have the default first and last only.
struct Round {
  double default_first_us = 0.0, default_last_us = 0.0;
  std::map<int32_t, double> candidates_us;    // by candidate
  std::vector<double> default_inner_us = {};  // between first and last
};

// Returns how often a round of so many racing candidates times the default between first and last.
// All candidates are compared with the default, so it is worth more time than each of them.
constexpr int32_t default_places(std::size_t racing) { return racing < 8 ? 2 : 4; }

// Where a candidate stands. A ratio is the candidate's time over the geometric mean of the
// default's inner times of the same round. A round without inner times counts with the default's
// first and last time instead.
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
  // Half the width of the 95 % interval of the median of the place ratios, infinite below 6 rounds.
  // A round's place ratio is the default's outer times (first and last) over its inner times. A
  // round without inner times has the ratio of the last time to the first.
  double noise = std::numeric_limits<double>::infinity();
  // What a winner's median must gain: the indifference, at least 2 * bias. The bias is 0 if all
  // rounds have inner blocks of the default. Otherwise it is how far the interval of the place
  // ratios lies away from 1, 0 if it holds 1. Infinite below 6 rounds.
  double zone = std::numeric_limits<double>::infinity();
  std::vector<Standing> standings;  // by candidate; the default's ratio is 1

  bool operator==(const Outcome&) const = default;
};

// Decides which of several candidate kernels replaces candidate 0, the default, if any.
//
// The scatter is the standard deviation of a ratio, by how much the ratios of all candidates differ
// from one round to the next. It tells the standard error of a median of n rounds,
// 1.25 * scatter / sqrt(n), and of the difference of two medians, sqrt(2) times that.
//
// A candidate may win if its median gains at least the zone. Its 95 % interval and its median plus
// `win_errors` standard errors must both lie below 1 - bias. Scatter needs no more than that: the
// interval and the errors shrink as rounds go on. The zone is for what no number of rounds averages
// out, blocks that are faster for their place in the round. The default's inner blocks are at
// random places, as the candidates are, so for these a place is scatter as well. If only the first
// and the last block are known, a trend through the round may change times by a share d in all. The
// base of these two blocks is then off by up to d / 2 at any place. The bias is how large d is for
// certain: the distance of the place ratios' interval from 1. The zone is at least twice the bias.
// Places that are faster in the middle of a round than at both ends do not show in such rounds.
//
// After 2, 3, 4, 6, 8, 12, 16, 24, ... rounds (a look) candidates are dropped that
// - are behind the best, or the default, by more than the indifference and `drop_errors` standard
//   errors of a difference
// - from `trial_rounds` on, gain less than the indifference by more than `futile_errors` standard
//   errors
// - from `trial_rounds` on, are not among the best `most_timings` / rounds.
// Looks are few because each is another occasion to be wrong. The last rule makes each doubling of
// the rounds take about the same time. It may drop the best, if the best is not much better than
// others.
//
// The best is the candidate with the lowest median among candidates that may win. Candidates are
// ordered from cheap to dear. The first candidate that may win wins if its interval overlaps the
// best's and its median is within the indifference of the best's median. The race ends if all
// candidates but the default are out at a look. It also ends if the best may win and no other is
// better by the indifference and a standard error.
//
// It reads no clock and draws no numbers: the same calls in the same order have the same outcome.
class Race {
 public:
  // Starts a race of `candidates` candidates, the default among them.
  explicit Race(int32_t candidates, const RaceRules& rules = {});

  // Returns the candidates to time in the next round, ascending; empty once the race is settled.
  std::vector<int32_t> racing() const;

  // Returns how many rounds from now on the next look is.
  int32_t rounds_to_look() const;

  // Adds a round. A candidate that it lacks has one round fewer. Errors (kInvalidValue, and the
  // round does not count): is_time_us() refuses a time, a candidate is not racing, or the round has
  // no candidate.
  Result<void> add(const Round& round);

  // Adds the part of a round that is about racing candidates, if there is any. Errors are as of
  // add().
  Result<void> add_racing(Round round);

  // Rules a candidate out, before or during the race or after it. Candidates that were dropped for
  // being slower than this one race again. A candidate keeps its first fault. Errors
  // (kInvalidValue): the default, or no such candidate.
  Result<void> disqualify(int32_t candidate, Fault fault);

  Outcome outcome() const;

 private:
  struct Runner {
    std::vector<double> ratios;
    MedianInterval figure;  // of the ratios, at the last look
    int32_t last_round = 0;
    int32_t dropped_after = 0;
    std::optional<Fault> fault;

    int32_t rounds() const { return static_cast<int32_t>(ratios.size()); }
    bool is_contender() const { return dropped_after == 0 && !fault; }
  };

  Result<void> check(const Round& round) const;
  int32_t most_rounds() const;
  int32_t rounds() const { return static_cast<int32_t>(place_ratios_.size()); }
  void refresh();
  void look();
  void drop_slower();
  void drop_futile();
  void drop_surplus();
  double error_of(const Runner& runner) const;
  double bias() const;
  double zone() const;
  bool may_win(const Runner& runner) const;
  const Runner* best_contender(int32_t least_rounds) const;
  bool is_clear() const;
  int32_t winner() const;

  RaceRules rules_;
  std::vector<Runner> runners_;       // by candidate; the default's stays empty
  std::vector<double> place_ratios_;  // by round
  MedianInterval place_figure_;       // of the place ratios, at the last look
  bool has_bare_rounds_ = false;      // whether a round lacked inner blocks of the default
  Scatter scatter_;
  double deviation_ = std::numeric_limits<double>::infinity();  // by the last look
  bool is_over_ = false;                                        // by the last look
};

}  // namespace moejit::tune
