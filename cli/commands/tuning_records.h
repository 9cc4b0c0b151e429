// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/tuning_use.h"
#include "compiler/tuning.h"
#include "runtime/device.h"

#include <memory>
#include <string>
#include <vector>

namespace moejit::cli {

// The tuning records that plans are made with.
struct TuningOptions {
  std::vector<std::string> records;  // empty: as MOEJIT_TUNING says
  bool is_used = true;
};

// What commands plan descriptions with that run nothing.
struct PlanArguments {
  std::string target = "cuda:sm_90a";
  std::string pass;  // "forward", "training", or empty: what the description says
  TuningOptions tuning;
};

// Reads the records that a command plans with: the records that it names, or the records of
// MOEJIT_TUNING. Returns null if there are none. With a device, plans are for its GPU. Errors: all
// of compiler::read_tunings().
Result<std::unique_ptr<const compiler::Tuning>> read_tuning_records(
    const TuningOptions& options, const runtime::Device* device = nullptr);

// Returns the options as words of another command line, with a blank in front; empty for none.
std::string tuning_words(const TuningOptions& options);

}  // namespace moejit::cli
