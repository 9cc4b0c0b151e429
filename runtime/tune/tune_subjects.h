// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/tune_problem.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moejit::tune {

// What a tuner was asked to tune.
struct TuneSubjects {
  std::vector<TunedLayer> layers;
  std::vector<measure::GemmCase> gemms;
  uint64_t seed = 0;  // of the operands of cases
  // The entries to verify; empty: everything is tuned.
  std::vector<compiler::TuningEntry> verified = {};
};

// Returns the problems of all subjects, each once, as join_problems() sorts them. If entries are to
// be verified, only their problems, each with the usual choices and with those of its entry, unless
// these are the usual ones or are not offered. Problems of layers keep the memory of the layer that
// was opened last in `opened`.
Result<std::vector<TuneProblem>> collect_problems(
    const TuneSubjects& subjects, const compiler::Target& target,
    const std::shared_ptr<OpenedLayer>& opened = std::make_shared<OpenedLayer>());

// Returns the kernels of all layers of groups that stay untuned, as unmeasured_kernels().
Result<std::vector<std::string>> unmeasured_kernels(const TuneSubjects& subjects,
                                                    const compiler::Target& target);
// Returns a sentence about kernels that stay untuned.
std::string unmeasured_text(const std::vector<std::string>& kernels);

}  // namespace moejit::tune
