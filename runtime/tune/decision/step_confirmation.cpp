// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/step_confirmation.h"

#include "compiler/support/digest.h"
#include "runtime/tune/decision/race.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace moejit::tune {
namespace {

tl::unexpected<Error> refuse_step(std::string message) {
  return fail(Stage::kCommand, ErrorCode::kInvalidValue, std::move(message));
}

// Takes the roots first: the product of two very long or short times could exceed a double.
double ratio_of(const StepTimes& times) {
  return std::sqrt(times.tuned_first_us) * std::sqrt(times.tuned_last_us) /
         (std::sqrt(times.default_first_us) * std::sqrt(times.default_last_us));
}

std::string digest_of(std::span<const StepChoice> set) {
  constexpr std::size_t kDigits = 32;
  std::vector<const StepChoice*> sorted;
  for (const StepChoice& choice : set) sorted.push_back(&choice);
  std::ranges::sort(sorted, {}, [](const StepChoice* choice) { return choice->problem; });
  FieldHasher hasher;
  for (const StepChoice* choice : sorted)
    hasher.add("problem", choice->problem)
        .add("choices", compiler::to_json(choice->choices).dump())
        .add("text_digest", choice->text_digest);
  return hasher.digest().hex().substr(0, kDigits);
}

// Returns how many choices remain after a set of `choices` has failed and `sets_left` sets may
// follow.
std::size_t remaining(std::size_t choices, int32_t sets_left) {
  if (sets_left <= 0) return 0;
  if (choices <= static_cast<std::size_t>(sets_left) + 1) return choices - 1;
  return choices / 2;
}

}  // namespace

StepConfirmation::StepConfirmation(std::vector<StepChoice> choices, const StepRules& rules)
    : rules_(rules), tuned_(std::move(choices)) {
  rules_.least_rounds = std::max(rules_.least_rounds, 1);
  rules_.most_rounds = std::max(rules_.most_rounds, 1);
  std::erase_if(tuned_, [](const StepChoice& choice) { return !(choice.certainty > 0.0); });
  std::ranges::sort(tuned_, [](const StepChoice& one, const StepChoice& other) {
    if (one.certainty != other.certainty) return one.certainty > other.certainty;
    return one.problem < other.problem;
  });
  use(rules_.most_sets > 0 ? tuned_.size() : 0);
}

Result<void> StepConfirmation::add(const StepTimes& times) {
  if (state_ != StepState::kMeasuring)
    return refuse_step("round of a step: got times, but no more are wanted");
  for (const double us :
       {times.default_first_us, times.tuned_first_us, times.tuned_last_us, times.default_last_us})
    if (!is_time_us(us))
      return refuse_step(fmt::format("round of a step: got {} microseconds, wanted {} to {}", us,
                                     kShortestUs, kLongestUs));
  rounds_.push_back(times);
  std::vector<double> ratios(rounds_.size());
  std::ranges::transform(rounds_, ratios.begin(), ratio_of);
  ratio_ = median_interval(std::move(ratios));
  decide();
  return {};
}

void StepConfirmation::decide() {
  const auto rounds = static_cast<int32_t>(rounds_.size());
  if (rounds >= rules_.least_rounds && ratio_.high < 1.0) {
    state_ = StepState::kConfirmed;
    return;
  }
  const bool is_lost = rounds >= rules_.least_rounds && ratio_.low >= 1.0;
  if (is_lost || rounds >= rules_.most_rounds) use(remaining(in_use_, rules_.most_sets - sets_));
}

// Begins to measure the set of the `count` most certain choices.
void StepConfirmation::use(std::size_t count) {
  in_use_ = count;
  set_digest_ = digest_of(set());
  rounds_.clear();
  ratio_ = {};
  state_ = count > 0 ? StepState::kMeasuring : StepState::kUsual;
  if (count > 0) ++sets_;
}

StepFigure StepConfirmation::figure() const {
  StepFigure figure{.rounds = static_cast<int32_t>(rounds_.size()), .ratio = ratio_};
  std::vector<double> tuned, usual;
  for (const StepTimes& times : rounds_) {
    tuned.insert(tuned.end(), {times.tuned_first_us, times.tuned_last_us});
    usual.insert(usual.end(), {times.default_first_us, times.default_last_us});
  }
  figure.microseconds = median_interval(std::move(tuned)).median;
  figure.default_microseconds = median_interval(std::move(usual)).median;
  return figure;
}

}  // namespace moejit::tune
