// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tune_options.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// The commands that tune kernels, and those on tuning records. Each has a record, which the command
// line fills (docs/cli.md), and the function that does it. Results go to the terminal's print().

struct TuneCommand {
  TuneOptions subjects;
  std::string replay;  // a journal to decide by instead of measuring
  std::string budget = "20m";
  std::string output;             // the record
  std::string journal;            // empty: the output's name and ".journal"
  std::string report;             // a page to write; empty: none
  int32_t exhaustive_rounds = 0;  // in which all candidates are timed; 0: a race
  bool resumes = false;
  bool is_dry_run = false;
  bool compiles_only = false;  // for the target cuda
  bool is_json = false;
};
Result<void> run_tune(const TuneCommand& command, Terminal& terminal);

struct TuningShowCommand {
  std::string record;
  bool is_json = false;
};
Result<void> run_tuning_show(const TuningShowCommand& command, Terminal& terminal);

struct TuningVerifyCommand {
  std::string record;
  TuneOptions subjects;
  std::optional<int64_t> sample;  // most entries to measure; default: all
  bool is_json = false;
};
Result<void> run_tuning_verify(const TuningVerifyCommand& command, Terminal& terminal);

struct TuningMergeCommand {
  std::vector<std::string> records;
  std::string output;
};
Result<void> run_tuning_merge(const TuningMergeCommand& command, Terminal& terminal);

struct TuningDiffCommand {
  std::string a, b;  // records
  bool is_json = false;
};
Result<void> run_tuning_diff(const TuningDiffCommand& command, Terminal& terminal);

struct TuningPruneCommand {
  std::string record;
  std::vector<std::string> layers;  // of layers or operations
  std::string pass;                 // as of PlanCommand
  std::string output;
};
Result<void> run_tuning_prune(const TuningPruneCommand& command, Terminal& terminal);

}  // namespace moejit::cli
