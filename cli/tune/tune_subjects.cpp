// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/tune_subjects.h"

#include "cli/commands/gemm_cases.h"
#include "cli/commands/layer_file.h"
#include "compiler/support/file.h"

#include <algorithm>
#include <fmt/core.h>
#include <memory>
#include <utility>

namespace moejit::cli {
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

Result<TuneSubjects> read_subjects(const MeasureOptions& options) {
  TuneSubjects subjects{.layers = {}, .gemms = {}, .seed = options.seed};
  for (const std::string& path : options.layers) {
    MOEJIT_TRY_ASSIGN(compiler::Layer layer, read_layer(path));
    choose_passes(layer, options.pass);
    const int64_t tokens = options.tokens.value_or(layer.max_tokens);
    if (tokens < 1 || tokens > layer.max_tokens)
      return fail(Stage::kCommand, ErrorCode::kUsage,
                  fmt::format("--tokens is {}, wanted 1 to {} (max_tokens of {})", tokens,
                              layer.max_tokens, path));
    subjects.layers.push_back({std::move(layer), tokens, options.seed});
  }
  if (options.gemms.empty()) return subjects;
  MOEJIT_TRY_ASSIGN(const std::string text, read_text_file(options.gemms));
  MOEJIT_TRY_ASSIGN(subjects.gemms, parse_gemm_cases(text, options.gemms));
  return subjects;
}

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

}  // namespace moejit::cli
