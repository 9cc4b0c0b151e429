// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/confirm_step.h"

#include "compiler/compiler.h"
#include "runtime/measure/versioned_kernel.h"
#include "runtime/tune/decision/replay_steps.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::tune {
namespace {

// Returns the problems of a layer that is measured, each once.
Result<std::vector<std::string>> problems_in(const TunedLayer& tuned,
                                             const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(const std::vector<TuneProblem> found,
                    problems_of(tuned, target, std::make_shared<OpenedLayer>()));
  std::vector<std::string> problems;
  for (const TuneProblem& problem : found)
    if (std::ranges::count(problems, problem.name) == 0) problems.push_back(problem.name);
  return problems;
}

// Appends the choices that the races propose to the journal. Returns how far they are confirmed by
// the journal's rounds.
Result<StepConfirmation> begin_step(const std::string& name,
                                    const std::vector<std::string>& problems,
                                    const std::string& gpu, const RaceSite& site,
                                    const std::string& journal_path) {
  MOEJIT_TRY_ASSIGN(Journal journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const std::vector<ReplayedRace> races, replay(journal));
  const StepList list = proposed_choices(races, gpu, problems);
  MOEJIT_TRY(site.journal.append(name, list));
  MOEJIT_TRY_ASSIGN(journal, read_journal(journal_path));
  MOEJIT_TRY_ASSIGN(const auto steps, replay_steps(journal, races));
  for (const ReplayedStep& step : steps)
    if (step.gpu == gpu && step.step == name) return step.confirmation;
  return StepConfirmation(list.choices);
}

// Measures sets of choices until the confirmation is decided or the site stops it.
Result<void> measure_step(std::size_t layer, const std::string& name, const RaceSite& site,
                          StepConfirmation& confirmation) {
  MOEJIT_TRY(site.measurer.open_step(layer));
  MOEJIT_TRY_ASSIGN(const double usual_us,
                    site.measurer.heat(site.times.heat_seconds, site.times.most_heat_seconds));
  const int64_t launches = measure::launches_for(site.times.block_seconds, usual_us);
  for (int32_t round = 1; confirmation.state() == StepState::kMeasuring && !site.stops(); ++round) {
    MOEJIT_TRY_ASSIGN(const TimedBlocks timed,
                      site.measurer.time_step(confirmation.set(), launches));
    const StepTimes times{.default_first_us = timed.microseconds[0],
                          .tuned_first_us = timed.microseconds[1],
                          .tuned_last_us = timed.microseconds[2],
                          .default_last_us = timed.microseconds[3]};
    MOEJIT_TRY(site.journal.append(name, StepRound{.round = round,
                                                   .set = confirmation.set_digest(),
                                                   .times = times,
                                                   .megahertz = timed.megahertz,
                                                   .watts = timed.watts}));
    MOEJIT_TRY(confirmation.add(times));
  }
  return {};
}

// Returns "8560.0 us, 8310.2 us with 5 tuned choices (-2.9 %), 6 rounds", or what else is known.
std::string outcome_text(const StepConfirmation& confirmation) {
  const std::size_t dropped = confirmation.dropped().size();
  const std::string left_out =
      dropped == 0 ? "" : fmt::format("; {} gave nothing in a step and are left out", dropped);
  switch (confirmation.state()) {
    case StepState::kMeasuring: return "not decided" + left_out;
    case StepState::kUsual:
      return dropped == 0 ? "nothing to confirm" : "no tuned choice is left" + left_out;
    case StepState::kConfirmed: break;
  }
  const StepFigure figure = confirmation.figure();
  return fmt::format("{:.1f} us, {:.1f} us with {} tuned choices ({:+.1f} %), {} rounds{}",
                     figure.default_microseconds, figure.microseconds, confirmation.set().size(),
                     100.0 * (figure.ratio.median - 1.0), figure.rounds, left_out);
}

}  // namespace

std::string step_name(const compiler::Plan& plan, int64_t tokens) {
  const int64_t ranks = plan.layer->expert_parallel.ranks;
  return fmt::format("step layer={} tokens={}{} passes={} plan_digest={}", plan.layer->name, tokens,
                     ranks > 0 ? fmt::format(" ranks={}", ranks) : "",
                     has_backward(*plan.layer) ? "forward+backward" : "forward", plan_digest(plan));
}

Result<void> confirm_steps(const TuneSubjects& subjects, const MeasuredDevice& device,
                           const RaceSite& site, const std::string& journal_path,
                           TuneObserver& observer) {
  for (std::size_t i = 0; i < subjects.layers.size() && !site.stops(); ++i) {
    const TunedLayer& tuned = subjects.layers[i];
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, plan_layer(tuned.layer, device.target));
    const std::string name = step_name(plan, tuned.tokens);
    MOEJIT_TRY_ASSIGN(const auto problems, problems_in(tuned, device.target));
    MOEJIT_TRY_ASSIGN(StepConfirmation confirmation,
                      begin_step(name, problems, device.gpu, site, journal_path));
    if (confirmation.state() == StepState::kMeasuring) {
      const Result<void> measured = measure_step(i, name, site, confirmation);
      if (!measured && (!site.measurer.is_usable() || measured.error().stage == Stage::kFile))
        return measured;
      if (!measured)
        observer.warn(
            fmt::format("{} step: {}; it is left out", tuned.layer.name, measured.error().message));
    }
    observer.note(fmt::format("{} step: {}", tuned.layer.name, outcome_text(confirmation)));
  }
  return {};
}

}  // namespace moejit::tune
