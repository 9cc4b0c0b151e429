// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "cli/tune/tune_problem.h"

#include <vector>

namespace moejit::cli {

// A layer, and the tokens of the calls that it is measured with.
struct TunedLayer {
  compiler::Layer layer;
  int64_t tokens = 0;
};

// What a tuner was asked to tune.
struct TuneSubjects {
  std::vector<TunedLayer> layers;
  std::vector<measure::GemmCase> gemms;
  uint64_t seed = 0;  // of operands
};

// Reads the files that the command names. Errors: those of reading and parsing them; kUsage for
// --tokens beyond a layer's max_tokens.
Result<TuneSubjects> read_subjects(const TuneCommand& command);

// Returns the problems of all subjects, each once, as join_problems() sorts them.
Result<std::vector<TuneProblem>> collect_problems(const TuneSubjects& subjects,
                                                  const compiler::Target& target);

}  // namespace moejit::cli
