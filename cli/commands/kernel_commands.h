// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/tuning_records.h"
#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/open_target.h"

#include <cstdint>
#include <optional>
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

struct RunCommand {
  std::string layer;
  std::string target = "auto";
  trial::CacheOptions cache;
  TuningOptions tuning;
  trial::InputOptions inputs;
  int32_t ranks = 0;             // of a group in this process; 0: the layer is of one rank
  std::string pass = "forward";  // or "backward": both
  std::string call;              // of the plan, by name; empty: what `pass` says
  std::string output;            // empty: nothing is written
  bool dump_intermediates = false;
  bool check = false;
  bool is_strict = false;  // a set status word is an error
  bool is_json = false;
};
Result<void> run_run(const RunCommand& command, Terminal& terminal);

struct BenchCommand {
  std::string layer;               // a description, or
  std::string gemms;               // a file of GEMM cases,
  std::vector<std::string> cases;  // of which only these; empty: all
  std::string target = "auto";
  trial::CacheOptions cache;
  TuningOptions tuning;
  std::string pass = "forward";   // or "training": forward and backward
  std::optional<int64_t> tokens;  // default: max_tokens
  int32_t ranks = 0;              // of a layer with expert_parallel; 0: the layer is of one rank
  int32_t repeat = 20;
  double hot_seconds = 0.35;
  uint64_t seed = 0;
  trial::RandomRouting routing = trial::RandomRouting::kSkewed;
  std::string report;  // a page to write; empty: none
  bool is_json = false;
  std::string command_line;  // as the process got it, for the report
};
Result<void> run_bench(const BenchCommand& command, Terminal& terminal);

}  // namespace moejit::cli
