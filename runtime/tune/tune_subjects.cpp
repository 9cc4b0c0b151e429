// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/tune_subjects.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <utility>

namespace moejit::tune {
namespace {

void keep_verified(std::vector<TuneProblem>& problems,
                   const std::vector<compiler::TuningEntry>& entries) {
  const auto entry_of = [&](const TuneProblem& problem) {
    return std::ranges::find(entries, problem.name, &compiler::TuningEntry::problem);
  };
  std::erase_if(problems,
                [&](const TuneProblem& problem) { return entry_of(problem) == entries.end(); });
  for (TuneProblem& problem : problems) {
    const compiler::Choices& recorded = entry_of(problem)->choices;
    const bool is_offered = std::ranges::count(problem.candidates, recorded) > 0;
    const bool is_usual = problem.candidates.front() == recorded;
    problem.candidates.resize(1);
    if (is_offered && !is_usual) problem.candidates.push_back(recorded);
  }
}

}  // namespace

Result<std::vector<TuneProblem>> collect_problems(const TuneSubjects& subjects,
                                                  const compiler::Target& target,
                                                  const std::shared_ptr<OpenedLayer>& opened) {
  std::vector<TuneProblem> problems;
  std::size_t owner = 0;
  const auto add = [&](TuneProblem problem) {
    problem.owner = owner;
    problems.push_back(std::move(problem));
  };
  for (const TunedLayer& tuned : subjects.layers) {
    MOEJIT_TRY_ASSIGN(std::vector<TuneProblem> found, problems_of(tuned, target, opened));
    for (TuneProblem& problem : found) add(std::move(problem));
    ++owner;
  }
  for (const measure::GemmCase& gemm : subjects.gemms) {
    MOEJIT_TRY_ASSIGN(TuneProblem problem, problem_of(gemm, target, subjects.seed));
    add(std::move(problem));
    ++owner;
  }
  join_problems(problems);
  if (!subjects.verified.empty()) keep_verified(problems, subjects.verified);
  return problems;
}

Result<std::vector<std::string>> unmeasured_kernels(const TuneSubjects& subjects,
                                                    const compiler::Target& target) {
  std::vector<std::string> kernels;
  for (const TunedLayer& tuned : subjects.layers) {
    MOEJIT_TRY_ASSIGN(const auto found, unmeasured_kernels(tuned, target));
    kernels.insert(kernels.end(), found.begin(), found.end());
  }
  return kernels;
}

std::string unmeasured_text(const std::vector<std::string>& kernels) {
  return fmt::format("not measured, since no layer of one GPU has them: {}; the usual choices stay",
                     fmt::join(kernels, ", "));
}

}  // namespace moejit::tune
