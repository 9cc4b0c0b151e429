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
  uint64_t seed = 0;  // makes the operands of cases
  // Entries to verify. If empty, everything is tuned.
  std::vector<compiler::TuningEntry> verified = {};
};

// Returns the problems of all subjects, each once, in the order of join_problems(). If entries are
// to be verified, returns only their problems. Such a problem has the usual choices and the choices
// of its entry, unless these are the usual ones or are not offered. Problems of layers keep the
// memory of the layer that was opened last in `opened`.
Result<std::vector<TuneProblem>> collect_problems(
    const TuneSubjects& subjects, const compiler::Target& target,
    const std::shared_ptr<OpenedLayer>& opened = std::make_shared<OpenedLayer>());

// Returns the kernels of all groups' layers that stay untuned, as unmeasured_kernels() does for one
// layer.
Result<std::vector<std::string>> unmeasured_kernels(const TuneSubjects& subjects,
                                                    const compiler::Target& target);
// Returns a sentence about kernels that stay untuned.
std::string unmeasured_text(const std::vector<std::string>& kernels);

}  // namespace moejit::tune
