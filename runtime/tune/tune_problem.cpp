// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/tune_problem.h"

#include "compiler/compiler.h"
#include "compiler/tuning.h"

#include <algorithm>
#include <map>

namespace moejit::tune {

compiler::Tuning tuning_of(const std::string& problem, const compiler::Choices& choices) {
  std::vector<compiler::TuningRecord> records(1);
  records.front().entries.push_back({.problem = problem, .choices = choices});
  return *compiler::Tuning::make(std::move(records));  // a single record is always of one GPU
}

Result<compiler::KernelPlan> kernel_of(const TuneProblem& problem,
                                       const compiler::Choices& choices) {
  const compiler::Tuning tuning = tuning_of(problem.name, choices);
  MOEJIT_TRY_ASSIGN(const auto plan, problem.plan({.tuning = &tuning}));
  return plan->kernels[problem.index];
}

Result<std::vector<std::string>> text_digests_of(const TuneProblem& problem,
                                                 const compiler::Target& target) {
  std::vector<std::string> digests;
  for (const compiler::Choices& choices : problem.candidates) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, kernel_of(problem, choices));
    MOEJIT_TRY_ASSIGN(digests.emplace_back(), measured_text_digest(kernel, target));
  }
  return digests;
}

Result<std::vector<compiler::KernelSource>> sources_of(const TuneProblem& problem,
                                                       const compiler::Target& target) {
  std::vector<compiler::KernelSource> sources;
  for (const compiler::Choices& choices : problem.candidates) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, kernel_of(problem, choices));
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, emit_kernel(kernel, target));
    sources.push_back(std::move(source));
  }
  return sources;
}

Result<std::vector<compiler::KernelSource>> sources_of(const std::vector<TuneProblem>& problems,
                                                       const compiler::Target& target) {
  std::vector<compiler::KernelSource> all;
  for (const TuneProblem& problem : problems) {
    MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> sources,
                      sources_of(problem, target));
    all.insert(all.end(), sources.begin(), sources.end());
  }
  return all;
}

void join_problems(std::vector<TuneProblem>& problems) {
  std::map<std::string, std::size_t> places;
  std::vector<TuneProblem> joined;
  std::map<std::size_t, double> worth;  // microseconds by owner
  for (TuneProblem& problem : problems) {
    const auto [place, is_new] = places.emplace(problem.name, joined.size());
    if (is_new)
      joined.push_back(std::move(problem));
    else
      joined[place->second].worth = tune::joined(joined[place->second].worth, problem.worth);
  }
  double all = 0.0;
  for (const TuneProblem& problem : joined) {
    worth[problem.owner] += microseconds_of(problem.worth);
    all += microseconds_of(problem.worth);
  }
  for (TuneProblem& problem : joined)
    problem.share = all == 0.0 ? 0.0 : microseconds_of(problem.worth) / all;
  std::ranges::stable_sort(joined, [&](const TuneProblem& one, const TuneProblem& other) {
    const double a = worth[one.owner], b = worth[other.owner];
    if (a != b) return a > b;
    if (one.owner != other.owner) return one.owner < other.owner;
    return one.share > other.share;
  });
  problems = std::move(joined);
}

}  // namespace moejit::tune
