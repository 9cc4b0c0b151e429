// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tuning_records.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"
#include "runtime/trial/inputs.h"
#include "runtime/trial/open_engine.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// The commands that make kernels and run them. Each has a record, which the command line fills
// (docs/cli.md), and the function that does it. Results go to the terminal's print().

struct BuildCommand {
  std::vector<std::string> layers;
  std::string target = "cuda:sm_90a";
  trial::CacheOptions cache;
  TuningOptions tuning;
  int32_t jobs = 0;  // 0: one per core
  bool with_intermediates = false;
  std::string variants;   // "described", "all"; empty: all for a pack, else described
  std::string pack;       // file to write; empty: none
  bool is_quiet = false;  // a line for each layer instead of one for each kernel
  bool is_json = false;
};
Result<void> run_build(const BuildCommand& command, Terminal& terminal);

// What commands that make calls of a layer or an operation have in common.
struct TrialCommand {
  std::string layer;  // its description
  std::string target = "auto";
  trial::CacheOptions cache;
  TuningOptions tuning;
  trial::InputOptions inputs;
  int32_t ranks = 0;             // of a group in this process; 0: the layer is of one rank
  std::string pass = "forward";  // or both passes: "backward" for run, "training" for bench
  bool is_json = false;
};

struct RunCommand : TrialCommand {
  std::string call;    // of the plan, by name; empty: what `pass` says
  std::string output;  // empty: nothing is written
  bool dump_intermediates = false;
  bool check = false;
  bool is_strict = false;  // a set status word is an error
};
Result<void> run_run(const RunCommand& command, Terminal& terminal);

// Instead of a description there may be a file of GEMM cases.
struct BenchCommand : TrialCommand {
  BenchCommand() { inputs.is_measured = true; }

  std::string gemms;               // the file,
  std::vector<std::string> cases;  // of which only these; empty: all
  int32_t repeat = 20;
  double hot_seconds = 0.35;
  std::string report;        // a page to write; empty: none
  std::string command_line;  // as the process got it, for the report
};
Result<void> run_bench(const BenchCommand& command, Terminal& terminal);

// Tests a device with all recipes, and writes what its owner can send to others.
struct SelftestCommand {
  std::string target = "cuda";
  trial::CacheOptions cache;
  std::vector<std::string> recipes;  // of layers; empty: all
  bool skips_bench = false;
  std::string report;  // file to write, JSON; empty: none
  bool is_json = false;
  std::string command_line;  // as the process got it
};
Result<void> run_selftest(const SelftestCommand& command, Terminal& terminal);

}  // namespace moejit::cli
